"""One greedy policy in verl's trainer and on a real SGLang server; and what a trainer leaves behind."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_rl.evaluation.exported_model import export_model
from agent_rl.evaluation.ledger import Ledger
from agent_rl.evaluation.runner import Evaluation, run
from agent_rl.evaluation.settings import read_settings
from agent_rl.evaluation.sources import open_source, serve
from agent_rl.trajectory import Trajectory, trace
from tests.e2e.taught import calls, teach
from tests.e2e.training import ROOT, train

pytestmark = [pytest.mark.engine, pytest.mark.recipes, pytest.mark.usefixtures("run_processes")]

TOOLS = str(ROOT / "tool_configs/calculator.yaml")
LENGTH = 1024
"""More than the episodes have: at the limit itself an endpoint of chats is some tokens off."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned to call the calculator, though not what to ask it."""
    out = tmp_path_factory.mktemp("model")
    teach(out, calls(wasteful=2))
    return out


def transcripts(trajectories: list[Trajectory]) -> dict[int, Any]:
    """What was said, by the row's index."""
    return {
        trajectory.info["index"]: (
            [(turn.text, turn.malformed, turn.observation, turn.tokens) for turn in trajectory.turns],
            [(result.name, result.text, result.status) for result in trajectory.results],
            (trajectory.answer, trajectory.stop_reason, trajectory.score and trajectory.score.total),
            (trajectory.prompt_tokens, trajectory.response_tokens),
        )
        for trajectory in trajectories
    }


def evaluated(folder: Path, data: Path, model: Path | str, *words: str) -> list[Trajectory]:
    settings = read_settings(
        {"data": str(data), "tools": TOOLS, "model": str(model)},
        [
            "sampling.temperature=0", f"sampling.max_response_tokens={LENGTH}", "multi_turn.max_assistant_turns=10",
            "agent_rl.react.instructions=", "agent_rl.trace.tokens=true", *words,
        ],
    )  # fmt: skip

    async def all_of_it() -> None:
        with Ledger(folder, settings) as ledger:
            async with open_source(settings, folder) as source:
                await run(Evaluation.load(settings), source, ledger, lambda record: None)

    asyncio.run(all_of_it())
    return list(trace.read(folder / "trajectories.jsonl"))


def test_one_policy_everywhere(tmp_path: Path, model: Path) -> None:
    logged = train(
        tmp_path,
        model,
        data__max_prompt_length=128,
        data__max_response_length=LENGTH,
        actor_rollout_ref__rollout__val_kwargs__do_sample=False,
        actor_rollout_ref__rollout__val_kwargs__temperature=0,
        actor_rollout_ref__actor__optim__lr=1e-6,
        reward__reward_manager__name="trajectory",
        reward__custom_reward_function__path="null",
        trainer__total_training_steps=1,
        trainer__val_before_train=True,
        trainer__save_freq=1,
        trainer__test_freq=1,
        agent_rl__trace__path=f"{tmp_path}/trace.jsonl",
        agent_rl__trace__tokens=True,
    )
    assert max(logged) == 1
    kept = list(trace.read(tmp_path / "trace.jsonl"))
    in_verl = transcripts([each for each in kept if each.info["split"] == "test" and each.info["step"] == 0])
    assert len(in_verl) == 4
    assert sum(len(turns) for turns, *_ in in_verl.values()) > 4
    data = tmp_path / "test.parquet"

    async def over_http() -> None:
        async with serve(model, "served", tmp_path / "server.log") as url:
            for policy in ("chat", "sglang"):
                words = [f"policy={policy}", f"endpoint={url}", f"tokenizer={model}"]
                found = await asyncio.to_thread(evaluated, tmp_path / policy, data, "served", *words)
                assert transcripts(found) == in_verl, policy

    asyncio.run(over_http())
    assert transcripts(evaluated(tmp_path / "local", data, model, "policy=local")) == in_verl
    check_the_checkpoint(tmp_path, kept)


def check_the_checkpoint(folder: Path, kept: list[Trajectory]) -> None:
    """The policy after the step, merged and served: the rounding to bfloat16 may change a few turns, not most."""
    after = transcripts([each for each in kept if each.info["split"] == "test" and each.info["step"] == 1])
    found = transcripts(evaluated(folder / "merged", folder / "test.parquet", folder / "checkpoints"))
    assert set(found) == set(after)
    assert sum(found[index] == after[index] for index in found) >= len(found) / 2
    export_model(str(folder / "checkpoints"), folder / "exported")
    exported = transcripts(evaluated(folder / "exported_eval", folder / "test.parquet", folder / "exported"))
    assert exported == found
