import shutil
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.launch.composition import compose, groups, unknown_keys, verl_defaults

pytestmark = pytest.mark.slow

GSM8K = Path(__file__).parents[2] / "recipes/gsm8k_calculator"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rolout.n=4", "Did you mean 'actor_rollout_ref.rollout.n'"),
        ("size=8b", "size: there is no option '8b'. Did you mean '"),
        ("siz=3b", "siz: unknown key. Did you mean the group 'size'? Known: "),
        ("plattform=cpu", "Did you mean the group 'platform'? Known: cpu."),
        ("~data.bla", "data.bla: unknown key"),
        ("trainer.nnodes=[1", "not a hydra override"),
        ("trainer.nnodes=two", "trainer.nnodes: expected a number, got 'two'"),
    ],
)
def test_a_wrong_override_names_the_remedy(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(GSM8K, [override])
    assert message in str(caught.value)


def test_the_user_wins_over_the_cpu_profile_and_that_over_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    config = compose(GSM8K, ["data.train_batch_size=6"])
    assert (config.trainer.device, config.data.train_batch_size, config.data.val_max_samples) == ("cpu", 6, 8)
    monkeypatch.delenv("VERL_PLATFORM")
    config = compose(GSM8K)
    assert (config.trainer.device, config.data.train_batch_size) == ("cuda", 256)


def test_a_key_may_be_added_on_purpose() -> None:
    config = compose(GSM8K, ["+mine.key=1"])
    assert config.mine.key == 1
    assert list(unknown_keys(config, verl_defaults())) == ["mine"]


@pytest.mark.parametrize(("choice", "samples", "temperature"), [("greedy", 1, 0), ("avg@8", 8, 1.0)])
def test_a_word_chooses_how_validation_samples(choice: str, samples: int, temperature: float) -> None:
    sampling = compose(GSM8K, [f"val={choice}"]).actor_rollout_ref.rollout.val_kwargs
    assert (sampling.n, sampling.temperature, sampling.top_p) == (samples, temperature, 1.0)


def test_a_recipe_may_replace_a_choice_of_a_group(tmp_path: Path) -> None:
    shutil.copytree(GSM8K, tmp_path, dirs_exist_ok=True)
    (tmp_path / "val").mkdir()
    text = "# @package _global_\nactor_rollout_ref: {rollout: {val_kwargs: {n: 8, temperature: 0.4}}}\n"
    (tmp_path / "val/avg@8.yaml").write_text(text)
    assert compose(tmp_path, ["val=avg@8"]).actor_rollout_ref.rollout.val_kwargs.temperature == 0.4
    assert compose(tmp_path, ["val=avg@16"]).actor_rollout_ref.rollout.val_kwargs.temperature == 1.0
    assert sorted(groups(tmp_path)["val"]) == ["avg@1", "avg@16", "avg@32", "avg@4", "avg@8", "greedy"]


def test_an_element_of_a_list_may_be_overridden() -> None:
    assert compose("gsm8k_calculator", ["trainer.logger=[console,file]", "trainer.logger.1=wandb"]).trainer.logger == [
        "console",
        "wandb",
    ]


@pytest.mark.parametrize(
    ("section", "written", "overrides", "message"),
    [
        ("trainer", "nnode: 1 # wrong", [], "PLACE: trainer.nnode: verl has no such key. Did you mean 'trainer.nnodes"),
        ("agent_rl", "react:\n    examples: default # wrong", [],
         "PLACE: agent_rl.react.examples: expected a list, got 'default'"),
        ("agent_rl", "react:\n    examples: default # wrong", ["agent_rl.react.examples=other"],
         "agent_rl.react.examples: expected a list, got 'other'"),
        ("trainer", "total_epochs: 0 # wrong", [],
         "PLACE: trainer.total_epochs: expected a whole number of 1 or more"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_recipe_is_named_with_its_line(
    section: str, written: str, overrides: list[str], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    text = (GSM8K / "config.yaml").read_text().replace("  - size: 3b\n", "").partition("agent_rl:")[0] + "agent_rl:\n"
    file.write_text(text.replace(f"{section}:\n", f"{section}:\n  {written}\n"))
    line = file.read_text().partition("# wrong")[0].count("\n") + 1
    with pytest.raises(ConfigError) as caught:
        compose(tmp_path, overrides)
    assert str(caught.value).startswith(message.replace("PLACE", f"{file}:{line}"))
