"""A component that raises in the third step: the run stops, has saved the second, and its command goes on from there.

No other run stops by an error after a step, and goes on afterwards; the asynchronous modes also save what is in flight.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from agent_rl import trace
from agent_rl.agents.react import ReactFormat
from agent_rl.evaluation.dumps import read_dump, score_dump
from agent_rl.launch.process import TrainerError, run_trainer
from agent_rl.settings import RewardSettings
from agent_rl.tools import load_tools
from tests.e2e.training import PROMPTS, train

pytestmark = [pytest.mark.engine, pytest.mark.recipes]

COMPONENT = """
from agent_rl import Component

class Mine(Component):
    async def measure(self, trajectory):
        if trajectory.info.get("step") == 3:
            return trajectory.row["levle"]
        return len(trajectory.turns) / 100
"""


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_a_run_that_a_component_stops_is_saved_and_goes_on(mode: str, tmp_path: Path, tiny_model: Path) -> None:
    component, last = tmp_path / "mine.py", 3 if mode == "sync" else 6
    component.write_text(COMPONENT)
    with pytest.raises(TrainerError, match=f"mine failed at {component}:7: KeyError: 'levle'") as caught:
        train(
            tmp_path,
            tiny_model,
            f"mode={mode}",
            reward__reward_manager__name="trajectory",
            reward__custom_reward_function__path="null",
            agent_rl__reward__components__mine__kind=f"{component}:Mine",
            agent_rl__trace__path=tmp_path / "trace.jsonl",
            trainer__default_local_dir=tmp_path / "checkpoints",
            trainer__resume_mode="auto",
            trainer__save_freq=-1,
            trainer__rollout_data_dir=tmp_path / "rollouts",
            trainer__total_training_steps=last,
        )
    log = (tmp_path / "out/train.log").read_text()
    assert "never retrieved" not in log
    assert "Repeat the call with: agent-rl reward score" in str(caught.value)
    said = re.search(
        r"Step (\d) is saved in (\S+): go on from there, after a correction, with: (.+)", str(caught.value)
    )
    assert said
    complete = int(said[1])
    assert complete == 2 or (mode != "sync" and 1 <= complete < last)  # rows of step 3 are scored while others train
    assert Path(said[2]) == tmp_path / f"checkpoints/global_step_{complete}"
    stopped = [each.info["index"] for each in trace.read(tmp_path / "trace.jsonl") if each.info["step"] == 3]
    component.write_text(COMPONENT.replace('trajectory.row["levle"]', "0.5"))
    logged: dict[int, dict[str, Any]] = {}
    run_trainer(shlex.split(said[3]), tmp_path / "again", on_metrics=logged.__setitem__, timeout_s=500)
    assert list(logged) == list(range(complete + 1, last + 1))
    if mode != "sync":
        return
    again = [each for each in trace.read(tmp_path / "trace.jsonl") if each.info["step"] == 3 and each.score]
    assert sorted(each.info["index"] for each in again) == sorted(2 * list(range(2 * PROMPTS, 3 * PROMPTS)))
    check_the_dump(tmp_path / "rollouts", f"{component}:Mine")
    assert set(stopped) <= {each.info["index"] for each in again}  # the rows of the step that was not completed


def check_the_dump(folder: Path, kind: str) -> None:
    """Our score of verl's dump is that of training, also of episodes that were cut off: the model was never taught."""
    settings = RewardSettings.model_validate({"components": {"mine": {"kind": kind}}})
    samples = [sample for sample in read_dump(folder) if sample.step < 3]
    assert any(sample.reported["stop_max_tokens"] for sample in samples)
    tools = load_tools(Path(__file__).parents[2] / "tool_configs/calculator.yaml")
    steps = asyncio.run(score_dump(samples, ReactFormat(), tools, settings))
    records = [record for its in steps.values() for record in its]
    assert len(records) == 2 * 2 * PROMPTS
    for record in records:
        assert record.reward == pytest.approx(record.metrics["verl_score"], abs=1e-5)
