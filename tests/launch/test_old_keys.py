"""A corpus of old command lines and YAML files: each takes effect, or is refused with the old key and what to write."""

import functools
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.launch.command import rewrite
from agent_rl.launch.composition import compose, verl_defaults
from agent_rl.settings import AgentRLSettings
from agent_rl.settings.old_keys import argument_keys, change_arguments, change_config, is_free, rows
from agent_rl.trajectory.run_files import leaves

GSM8K = Path(__file__).parents[2] / "recipes/gsm8k_calculator"
ROLLOUT, REWARD = "actor_rollout_ref.rollout", "reward.reward_model"

MOVED: list[tuple[str, dict[str, Any]]] = [
    (
        "custom_reward_function.path=my/score.py custom_reward_function.name=score_fn",
        {"reward.custom_reward_function.path": "my/score.py", "reward.custom_reward_function.name": "score_fn"},
    ),
    ("+custom_reward_function.reward_kwargs.k1=0.5", {"reward.custom_reward_function.reward_kwargs.k1": 0.5}),
    ("reward_model.model.path=org/judge-7b", {f"{REWARD}.model_path": "org/judge-7b"}),
    ("reward_model.model.input_tokenizer=null reward_model.enable=True", {f"{REWARD}.enable": True}),
    ("reward_model.model.fsdp_config.param_offload=False reward_model.num_workers=3", {"reward.num_workers": 3}),
    ("reward_model.reward_manager=trajectory", {"reward.reward_manager.name": "trajectory"}),
    ("+reward_model.reward_api=http://judge:80/reward", {"agent_rl.reward.reward_api": "http://judge:80/reward"}),
    (
        "reward_model.reward_kwargs.overlong_buffer_cfg.enable=True"
        " reward_model.reward_kwargs.overlong_buffer_cfg.len=96"
        " reward_model.reward_kwargs.overlong_buffer_cfg.penalty_factor=0.7"
        " reward_model.reward_kwargs.max_resp_len=2048",
        {"agent_rl.reward.overlong.buffer_tokens": 96, "agent_rl.reward.overlong.penalty": 0.7},
    ),
    ("dataset_weights=[0.3,0.7]", {"agent_rl.data.weights": [0.3, 0.7]}),
    ("group_size=6", {f"{ROLLOUT}.n": 6}),
    ("agent_loop=tool_agent_loop", {f"{ROLLOUT}.agent.default_agent_loop": "tool_agent"}),
    (f"{ROLLOUT}.load_format=dummy_dtensor", {f"{ROLLOUT}.load_format": "dummy"}),
    ("lora.r=16", {"actor_rollout_ref.model.lora_rank": 16}),
    ("--local_dir=/data/ckpt", {"trainer.default_local_dir": "/data/ckpt"}),
    (
        "data.train_data_num=null data.shuffle_train_dataloader=True max_turns=9",
        {"data.shuffle": True, f"{ROLLOUT}.multi_turn.max_assistant_turns": 9},
    ),
]
"""Command lines of the old shapes, and what they are in the composed configuration: one for each kind of row."""

REFUSED: list[tuple[str, list[str]]] = [
    ("reward_model=dp_reward_model", ["reward_model", "reward.reward_model"]),
    ("reward_model.batch_size=8", ["reward_model.batch_size", "reward.reward_model.rollout.max_num_seqs=8"]),
    ("reward_model.model.fsdp_config.param_offload=True", ["reward.reward_model.enable_resource_pool=false"]),
    ("reward_model.reward_manager=prime", ["reward_model.reward_manager", "reward.reward_manager.name=trajectory"]),
    ("reward.reward_manager.name=batch", ["reward.reward_manager.name=trajectory", "reward.custom_reward_function"]),
    ("reward_model.anything_else=1", ["reward_model.anything_else", "reward.reward_model", "agent_rl.reward.models"]),
    ("reward_model.model.path=[a/x,b/y]", ["[a/x,b/y]", "agent_rl.reward.models.NAME.path", "kind: reward_model"]),
    ("reward_function=[f,g] reward_weight=[1,2]", ["kind: FILE.py:CLASS", "docs/guides/rewards.md"]),
    ("reward.reward_kwargs.alpha=2", ["reward.custom_reward_function.reward_kwargs.alpha=2"]),
    ("sampling_params.max_tokens=512", ["data.max_response_length", "512"]),
    (f"{ROLLOUT}.mode=sync", [f"{ROLLOUT}.mode=async"]),
    ("retriever.url=http://127.0.0.1:8000/retrieve", ["retriever.url", "SEARCH_URL=http://127.0.0.1:8000/retrieve"]),
    ("env.env_name=alfworld", ["env.env_name", "tools with state"]),
    ("--config-path=my/folder --config-name=x", ["--config-path", "agent-rl train FOLDER", "my/folder"]),
    ("algorithm.kl_coef=0.01", ["actor_rollout_ref.actor.kl_loss_coef=0.01", "algorithm.kl_ctrl.kl_coef=0.01"]),
    ("run_name=a trainer.experiment_name=b", ["run_name", "trainer.experiment_name", "Remove one of them"]),
]
"""Command lines of the old shapes, and what their refusal says."""

FILES: list[tuple[str, dict[str, Any] | list[str]]] = [
    (
        "reward_model: {enable: true, model: {path: org/judge}, rollout: {name: sglang, max_num_seqs: 8}}",
        {f"{REWARD}.enable": True, f"{REWARD}.model_path": "org/judge", f"{REWARD}.rollout.max_num_seqs": 8},
    ),
    (
        "reward_model: {reward_manager: dapo, overlong_buffer: {enable: true, len: 4096, penalty_factor: 1.0}}",
        {"reward.reward_manager.name": "dapo", "reward.reward_kwargs.overlong_buffer_cfg.len": 4096},
    ),
    ("run_name: ${oc.env:HOME}", {"trainer.experiment_name": str(Path.home())}),
    ("data: {dataset_weights: {openai/gsm8k: 1, math: 2}}", {"agent_rl.data.weights": {"openai/gsm8k": 1, "math": 2}}),
    ("reward_model: {model: {path: [a, b]}}\nreward_weight: [1, 2]", ["agent_rl.reward.models.NAME.path"]),
    (
        "reward: {reward_kwargs: {overlong_buffer_cfg: {enable: true, len: 64}}, reward_manager: {name: naive}}",
        ["reward.reward_manager.name=dapo"],
    ),
]
"""Files of the old shapes, and what they are in the configuration, or what their refusal says."""


@functools.cache
def defaults() -> DictConfig:
    """Verl's configuration with what our base file changes in it."""
    verls = verl_defaults().copy()
    OmegaConf.set_struct(verls, False)
    merged = OmegaConf.merge(verls, OmegaConf.load(Path(__file__).parents[2] / "agent_rl/config/agent.yaml"))
    assert isinstance(merged, DictConfig)
    return merged


def test_old_command_lines_take_effect(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One composition for all: no two of them give a key different values."""
    monkeypatch.setenv("AGENT_RL_OLD_KEYS_TOLD", "")
    arguments: dict[str, None] = {}
    told: dict[str, list[str]] = {}
    for line, _ in MOVED:
        changed, told[line] = change_arguments(line.split(), "train")
        arguments |= dict.fromkeys(changed)
    config = compose(GSM8K, list(arguments))
    composed = capsys.readouterr().err
    for line, expected in MOVED:
        for key, value in expected.items():
            assert OmegaConf.select(config, key) == value, line
        for key in argument_keys(line.split()) - expected.keys():
            said = f"{key}="
            assert any(note.startswith(said) for note in told[line]) or f"agent_rl: {said}" in composed, line


@pytest.mark.parametrize(("line", "said"), REFUSED, ids=[line for line, _ in REFUSED])
def test_old_command_lines_are_refused_with_what_to_write(line: str, said: list[str]) -> None:
    def change() -> None:
        words = [word.lstrip("+") for word in change_arguments(line.split(), "train")[0]]
        change_config(OmegaConf.merge(defaults(), OmegaConf.from_dotlist(words)))

    with pytest.raises(ConfigError) as caught:
        change()
    for each in [line.split()[0].lstrip("+").partition("=")[0], *said]:
        assert each in str(caught.value)


@pytest.mark.parametrize(("text", "expected"), FILES, ids=[text for text, _ in FILES])
def test_old_files_take_effect_or_are_refused(text: str, expected: dict[str, Any] | list[str]) -> None:
    config = OmegaConf.merge(defaults(), OmegaConf.create(text))
    if isinstance(expected, list):
        with pytest.raises(ConfigError) as caught:
            change_config(config)
        assert all(each in str(caught.value) for each in expected), str(caught.value)
        return
    change_config(config)
    for key, value in expected.items():
        assert OmegaConf.select(config, key) == value
    assert change_config(config) == []


def test_a_recipe_in_old_spelling_composes_and_a_refusal_names_its_line(tmp_path: Path) -> None:
    text = (GSM8K / "config.yaml").read_text().replace("  - size: 3b\n", "")
    file = tmp_path / "config.yaml"
    file.write_text(f"{text}\nlora: {{r: 16}}\ncustom_reward_function:\n  path: a.py\n  reward_kwargs: {{x: 1}}\n")
    config = compose(tmp_path, ["reward.custom_reward_function.path=b.py"])
    assert config.actor_rollout_ref.model.lora_rank == 16
    assert config.reward.custom_reward_function.path == "b.py"
    assert config.reward.custom_reward_function.reward_kwargs.x == 1
    assert "lora" not in config
    assert (config.custom_reward_function.path, "reward_kwargs" in config.custom_reward_function) == (None, False)
    file.write_text(f"{text}\nreward_model:\n  micro_batch_size: 2\n")
    line = text.count("\n") + 3
    with pytest.raises(ConfigError) as caught:
        compose(tmp_path)
    assert str(caught.value).startswith(f"{file}:{line}: reward_model.micro_batch_size: changed since older releases")


def test_the_number_of_gpus_in_the_environment_takes_effect_unless_the_command_line_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUS_PER_NODE", "2")
    assert rewrite([]) == ["trainer.n_gpus_per_node=2"]
    assert rewrite(["trainer.n_gpus_per_node=4"]) == ["trainer.n_gpus_per_node=4"]


def test_every_key_that_verl_itself_calls_old_is_in_the_table() -> None:
    defaults = OmegaConf.to_container(verl_defaults())
    assert isinstance(defaults, dict)
    old = {name: defaults[name] for name in ("custom_reward_function", "reward_model", "sandbox_fusion")}
    for key, _ in leaves(old):
        row = next(row for row in rows() if row.match(key, "1") is not None)
        if row.kind == "moved":
            assert row.reset is None, f"{key}: verl's fully asynchronous entry reads it, so it must stay, as null"
            assert argument_keys(change_arguments([f"{key}=1"])[0]) == {row.renamed(key, "")}
        else:
            assert row.old != "reward_model.*", key


def test_the_new_key_of_every_row_exists() -> None:
    config = defaults()
    settings = AgentRLSettings().model_dump()
    for row in rows():
        if row.kind != "moved" or row.new is None or row.command == "eval":
            continue
        new = row.renamed(row.old, "X")
        section = new.removesuffix(".X")
        listed = new.startswith("agent_rl.") or not is_free(section)
        node = {"agent_rl": settings} if new.startswith("agent_rl.") else config
        for part in section.split(".") if listed else []:
            assert part in set(node), f"{row.old} is said to be {new}"
            node = node[part] if isinstance(node, dict) else node._get_node(part)
