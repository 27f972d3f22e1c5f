"""Recipes next to published runs: every difference is named, and the verdict says what a figure is worth."""

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.evaluation import parity
from agent_rl.evaluation.parity import SETTINGS, STATED, UNKNOWN, Card, Comparison, Difference, cards, compare
from agent_rl.launch.recipes import share_folder
from tests.support.cli import invoke

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
RUN = "search_skyrl_3_turns"
PLANTED = {
    "model": ("actor_rollout_ref.model.path=Qwen/Qwen2.5-3B", "Qwen/Qwen2.5-3B"),
    "trained_weights": ("actor_rollout_ref.model.lora_rank=32", "LoRA 32"),
    "algorithm": ("algorithm.adv_estimator=rloo", "rloo"),
    "steps": ("trainer.total_training_steps=1005", 1005),
    "batch": ("data.train_batch_size=256", 256),
    "mini_batch": (f"{ACTOR}.ppo_mini_batch_size=128", 128),
    "samples": (f"{ROLLOUT}.n=8", 8),
    "learning_rate": (f"{ACTOR}.optim.lr=3e-6", 3e-6),
    "warmup": (f"{ACTOR}.optim.lr_warmup_steps=94", 94),
    "grad_norm": (f"{ACTOR}.optim.clip_grad=1.0", 1.0),
    "kl": (f"{ACTOR}.kl_loss_coef=0.01", "loss 0.01"),
    "clip_high": (f"{ACTOR}.clip_ratio_high=0.28", 0.28),
    "correction_limit": ("algorithm.rollout_correction.rollout_is_threshold=5", 5.0),
    "temperature": (f"{ROLLOUT}.temperature=0.6", 0.6),
    "top_p": (f"{ROLLOUT}.top_p=0.95", 0.95),
    "turns": (f"{ROLLOUT}.multi_turn.max_assistant_turns=4", 4),
    "validation_turns": ("", 4),
    "prompt_tokens": ("data.max_prompt_length=1024", 1024),
    "agent": (f"{ROLLOUT}.agent.default_agent_loop=react_agent", "react_agent"),
    "tools": (f"{ROLLOUT}.multi_turn.tool_config_path=tool_configs/calculator.yaml", ["calculator"]),
    "validation_samples": (f"{ROLLOUT}.val_kwargs.n=4", 4),
    "validation_temperature": (f"{ROLLOUT}.val_kwargs.temperature=0.8", 0.8),
    "validation_top_p": (f"{ROLLOUT}.val_kwargs.top_p=0.6", 0.6),
    "validation_top_k": (f"{ROLLOUT}.val_kwargs.top_k=20", 20),
    "gpus": ("trainer.n_gpus_per_node=4", 4),
    "rows": ("data.train_files=/data/mine.parquet", UNKNOWN),
    "test": ("data.val_files=/data/mine.parquet", UNKNOWN),
    "environment": ("", UNKNOWN),
}
"""An override for each setting that equals the card's, and the value that the comparison then shows here."""


@pytest.fixture(scope="module", autouse=True)
def on_gpus() -> Iterator[None]:
    """The platform that the cards are about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("VERL_PLATFORM", raising=False)
        yield


@pytest.fixture(scope="module")
def composed() -> Comparison:
    """The recipe as it is, next to the run that it copies."""
    return compare("search_qa")[RUN]


@pytest.fixture(scope="module")
def planted() -> dict[str, Difference]:
    words = [word for word, _ in PLANTED.values() if word]
    return {difference.setting: difference for difference in compare("search_qa", words)[RUN].differences}


def test_a_recipe_that_copies_a_run_differs_only_where_it_says(composed: Comparison) -> None:
    assert {item.setting for item in composed.known} == {"turn_tokens", "response_tokens", "reward", "environment"}
    assert composed.verdict == f"same except for {len(composed.differences)} settings, 3 of them unknown"
    assert composed.words == ("size=3b",)


@pytest.mark.parametrize("setting", PLANTED)
def test_a_planted_difference_is_named(composed: Comparison, planted: dict[str, Difference], setting: str) -> None:
    before = {item.setting: item.here for item in composed.differences}
    assert planted[setting].here == PLANTED[setting][1]
    assert before.get(setting) != PLANTED[setting][1]


def test_a_figure_is_of_another_task_with_other_tools_or_without_a_common_test_set() -> None:
    card = cards()[RUN]

    def verdict(*differences: Difference) -> str:
        return Comparison(card, (), list(differences)).verdict

    sets = ["NQ", "HotpotQA"]
    assert verdict() == "same"
    assert verdict(Difference("turns", 3, 4)) == "same except for 1 setting, 0 of them unknown"
    assert verdict(Difference("test", sets, ["HotpotQA"])) == "same except for 1 setting, 0 of them unknown"
    assert verdict(Difference("test", sets, ["AIME24"])) == "another task (test)"
    assert (
        verdict(Difference("test", sets, UNKNOWN))
        == verdict(Difference("test", UNKNOWN, sets))
        == "another task (test)"
    )
    assert verdict(Difference("tools", [], ["calculator"])) == "another task (tools)"


@pytest.mark.parametrize(
    ("published", "here", "is_equal"),
    [
        (1e-6, "1e-06", True),
        (3, 3.0, True),
        ("Qwen2.5-3B-Instruct", "models/qwen2.5-3b-instruct", True),
        (["sql", "python"], ["python", "sql"], True),
        ([], [], True),
        ([], ["sql"], False),
        ("grpo", "gigpo", False),
        (UNKNOWN, "grpo", False),
        (UNKNOWN, UNKNOWN, False),
        ("none", [], False),
    ],
)
def test_values_are_compared_by_meaning_and_unknown_equals_nothing(
    published: parity.Value, here: parity.Value, is_equal: bool
) -> None:
    assert parity._is_equal(Difference("x", published, here)) is is_equal


def test_every_card_names_its_sources_and_recipes_that_exist() -> None:
    names = {file.parent.name for file in share_folder().glob("recipes/*/config.yaml")}
    for name, card in cards().items():
        assert set(card.recipes) <= names, name
        for own in card.recipes.values():
            assert set(own.states) == set(STATED), name
        for source in card.sources:
            assert source.url.startswith("https://"), name
            assert date(2026, 11, 1) <= source.read, name
    assert len(cards()) >= 55


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("turns: 3", "settings.turn_limit: there is no such setting"),
        ("read: '2026-11-27'", "read"),
        ("numbers:", "number"),
    ],
)
def test_a_wrong_card_is_an_error_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, message: str
) -> None:
    text = (share_folder() / f"recipes/published/{RUN}.yaml").read_text()
    wrong = {"turns: 3": "turn_limit: 3", "read: '2026-11-27'": "read: yesterday", "numbers:": "number:"}[change]
    folder = tmp_path / "recipes/published"
    folder.mkdir(parents=True)
    (folder / f"{RUN}.yaml").write_text(text.replace(f" {change}", f" {wrong}").replace(f"\n{change}", f"\n{wrong}"))
    monkeypatch.setattr(parity, "share_folder", lambda: tmp_path)
    with pytest.raises(ConfigError) as error:
        cards()
    assert message in str(error.value)
    assert f"{RUN}.yaml:" in str(error.value)


def test_a_card_that_gives_nothing_differs_in_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    source = {"page": "a page", "url": "https://host", "read": "2026-11-27"}
    facts = {"run": "A run", "numbers": {}, "sources": [source], "settings": {}, "recipes": {"quickstart": {}}}
    empty = Card.model_validate(facts)
    monkeypatch.setattr(parity, "cards", lambda: {"empty": empty})
    comparison = compare("quickstart")["empty"]
    assert [item.setting for item in comparison.differences] == [*SETTINGS, *STATED]
    assert comparison.known == []
    assert comparison.verdict == "another task (tools, test)"


def test_the_command_prints_differences_sources_and_a_verdict() -> None:
    text = invoke("parity", "math_python", "size=7b", "trainer.total_training_steps=320").output
    assert "  steps 310 (here 320)\n" in text
    assert "math_verl_tool_7b: verl-tool, Qwen2.5-Math-7B. GSM8K: 91.4" in text
    assert "examples/train/math_tir/train_7b_grpo.sh" in text
    assert "simpletir" not in text
    runs = json.loads(invoke("parity", "geo3k", "--json").stdout)["runs"]
    assert runs["geo3k_verl_7b"]["numbers"] == {"Geometry3K": 65.4}
    assert {"setting": "prompt_tokens", "published": 1024, "here": 2048} in runs["geo3k_verl_7b"]["differences"]
    assert invoke("parity", "quickstart").output == "no card in recipes/published names quickstart in this size\n"


KNOWN_MISTAKES = {
    "math_python size=1.5b trainer.total_training_steps=310 trainer.n_gpus_per_node=8 val=greedy "
    f"{ROLLOUT}.multi_turn.max_assistant_turns=5 {ACTOR}.optim.lr_warmup_steps=-1 "
    "agent_rl.tools.max_result_tokens=null": (
        "math_verl_tool_1_5b", "steps turns gpus warmup observation validation_samples validation_temperature"),
    "math_python size=7b trainer.total_training_steps=320": ("math_verl_tool_7b", "steps"),
    f"search_qa size=3b {ROLLOUT}.multi_turn.max_assistant_turns=4 {ACTOR}.optim.lr_warmup_steps=-1 "
    f"{ACTOR}.optim.clip_grad=1.0 correction=none": (
        RUN, "turns warmup grad_norm correction correction_limit environment reward"),
    f"text_world size=1_5b trainer.total_training_steps=50 {ACTOR}.kl_loss_coef=0.001 val=greedy": (
        "alfworld_grpo_1_5b", "steps kl reward validation_temperature tools test"),
    f"text_to_sql size=7b data.max_response_length=4096 {ROLLOUT}.top_p=1.0 {ACTOR}.optim.clip_grad=1.0": (
        "text_to_sql_skyrl", "response_tokens turn_tokens observation top_p grad_norm"),
    "math_python size=simpletir algo=grpo data.train_batch_size=128 data.max_prompt_length=1024 val=greedy "
    "agent_rl.tools.max_result_tokens=null": (
        "math_simpletir_7b", "batch prompt_tokens clip_high groups observation validation_samples validation_turns"),
    "math_python size=retool algo=grpo val=greedy trainer.total_training_steps=150": (
        "retool_7b", "validation_samples validation_temperature validation_top_p agent steps reward clip_c"),
    "tool_calls size=3b kl=loss trainer.total_training_steps=100": ("tool_calls_toolrl_7b", "kl reward steps gpus"),
    "service size=4b val=greedy agent_rl.user_sim.config.temperature=0": (
        "tau2_retail_4b", "user user_temperature validation_samples validation_top_k"),
    "gsm8k_calculator size=0.5b": ("gsm8k_verl_4998_bonus", "batch mini_batch samples gpus tools reward"),
    f"geo3k size=7b {ROLLOUT}.multi_turn.tool_config_path=tool_configs/calculator.yaml": ("geo3k_verl_7b", "tools"),
}  # fmt: skip
"""Values that recipes of version 0.1.0 had, the run that they copied, and the settings in which they differed."""


@pytest.mark.recipes
@pytest.mark.parametrize("words", KNOWN_MISTAKES)
def test_the_mistakes_of_earlier_recipes_are_named(words: str) -> None:
    recipe, *overrides = words.split()
    card, settings = KNOWN_MISTAKES[words]
    assert set(settings.split()) <= {item.setting for item in compare(recipe, overrides)[card].differences}
