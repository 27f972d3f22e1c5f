"""Made metrics of each symptom raise its warning; a healthy run, and every stored run that learned, raise none.

`make quickstart && .venv/bin/python -m tests.trajectory.test_symptoms outputs/quickstart` writes quickstart.jsonl: of a
whole quickstart, the metrics that the rules read.
"""

import csv
import json
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_rl.trajectory.run_files import RunState, read_metrics
from agent_rl.trajectory.symptoms import SYMPTOMS, TERMS, end_warnings, run_warnings

ROOT = Path(__file__).parents[2]

HEALTHY: dict[str, Callable[[int], float]] = {
    "critic/score/mean": lambda step: step / 40,
    "critic/advantages/max": lambda step: 1.5,
    "critic/advantages/min": lambda step: -1.5,
    "agent/correctness": lambda step: step / 40,
    "agent/style": lambda step: step % 3,
    "agent/malformed_rate": lambda step: 0.1,
    "agent/unscored": lambda step: 0,
    "agent/tool_calls": lambda step: 1.5,
    "agent/tool_errors": lambda step: 0.2,
    "agent/repeated_calls": lambda step: 0.2,
    "agent/tool_seconds": lambda step: 3.0,
    "agent/generation_seconds": lambda step: 9.0,
    "actor/kl_loss": lambda step: step / 100,
    "actor/entropy": lambda step: 2 - step / 30,
    "response_length/clip_ratio": lambda step: 0.02,
    "training/rollout_probs_diff_mean": lambda step: 0.001,
    "timing_s/step": lambda step: 10.0,
    "timing_s/gen": lambda step: 8.0,
    "timing_s/reward": lambda step: 1.0,
}


def warned(count: int = 30, **changed: Callable[[int], Any]) -> list[tuple[str, str]]:
    """The symptoms and texts of a run with some other metrics."""
    metrics = {**HEALTHY, **{key.replace("__", "/"): value for key, value in changed.items()}}
    steps = [{"step": step, **{key: value(step) for key, value in metrics.items()}} for step in range(1, count + 1)]
    found = run_warnings(steps, {"agent_rl": {"reward": {"components": {"style": {"kind": "style"}}}}})
    assert all(each.remedy for each in found)
    return [(each.symptom, each.text) for each in found]


@pytest.mark.parametrize("count", range(31))
def test_a_healthy_run_has_no_warning_at_any_step(count: int) -> None:
    assert warned(count) == []


def test_without_metrics_there_is_no_warning() -> None:
    assert run_warnings([], {}) == run_warnings([{"step": 1}], {}) == []


RISES, THING, DROPS = "The reward does not rise", "The wrong thing is rewarded", "The reward drops"
LOOPS, LIMIT, UNSCORED = "The agent loops on a tool", "Responses reach the limit", "Trajectories go unscored"
DRIFT, IDLE = "Drift", "The GPU is idle"
MADE: list[tuple[str, int, dict[str, Callable[[int], Any]], str]] = [
    (RISES, 3, {"agent__correctness": lambda step: 0}, "No answer was right in 3 steps"),
    (RISES, 9, {"critic__advantages__max": lambda step: float(step < 5),
                "critic__advantages__min": lambda step: -float(step < 5)}, "the same reward since step 5"),
    (RISES, 3, {"agent__malformed_rate": lambda step: 0.7}, "70% of the turns"),
    (RISES, 3, {"agent__tool_errors": lambda step: 1.5}, "100% of the tool calls fail"),
    (RISES, 30, {"agent__style": lambda step: 0.5}, "The style component is 0.5 in all 30 steps"),
    (RISES, 1, {"agent__tool_calls": lambda step: 0}, "No tool was ever called"),
    (RISES, 30, {"agent__tool_calls": lambda step: 1.0 if step < 14 else 0}, "since step 14 (1.00 calls"),
    (THING, 30, {"agent__correctness": lambda step: 0.9 - step / 100}, "Correctness has fallen since step 1 (0.85"),
    (DROPS, 30, {"critic__score__mean": lambda step: 0.9 if 10 < step < 20 else 0.2}, "was 0.90 around step 11"),
    (DROPS, 30, {"actor__kl_loss": lambda step: 1.0 if step < 17 else 11.0}, "above 10 since step 17 (11)"),
    (DROPS, 30, {"actor__entropy": lambda step: 2.0 if step < 9 else 0.1}, "of its initial value (2) since step 9"),
    (LOOPS, 3, {"agent__repeated_calls": lambda step: 1.2}, "80% of the tool calls repeat"),
    (LIMIT, 3, {"response_length__clip_ratio": lambda step: 0.9}, "90% of the responses reach"),
    (LIMIT, 30, {"response_length__clip_ratio": lambda step: 0.0 if step < 12 else 0.4}, "since step 12: 0% in the"),
    (UNSCORED, 1, {"agent__unscored": lambda step: 3}, "3 trajectories went unscored in step 1"),
    (UNSCORED, 5, {"agent__unscored": lambda step: float(step > 3)}, "2 trajectories went unscored since step 4"),
    (DRIFT, 1, {"training__rollout_probs_diff_mean": lambda step: 0.05}, "disagreed since step 1"),
    (IDLE, 3, {"agent__tool_seconds": lambda step: 12.0}, "wait 12.0 s for tools"),
    (IDLE, 3, {"timing_s__reward": lambda step: 6.0}, "Scoring takes 60% of a step"),
]  # fmt: skip
"""Symptom, number of steps with which it is first warned about, metrics, and a part of the text."""


@pytest.mark.parametrize(("symptom", "count", "changed", "words"), MADE)
def test_a_symptom_raises_its_warning_from_the_first_step_that_can_show_it(
    symptom: str, count: int, changed: dict[str, Callable[[int], Any]], words: str
) -> None:
    ((title, text),) = warned(count, **changed)
    assert title == symptom
    assert words in text
    if count <= 3:
        assert warned(count - 1, **changed) == []


@pytest.mark.parametrize(
    ("state", "symptom", "words"),
    [
        (RunState("failed", 3, "", "torch.OutOfMemoryError: CUDA out of memory"), "Out of memory", "CUDA out of mem"),
        (RunState("failed", 3, "", "ended by SIGKILL (out of memory?)"), "Out of memory", "out of memory?"),
        (RunState("failed", None, "", "ConfigError: x"), "Before the first step", "failed before the first step: Conf"),
        (RunState("killed"), "Before the first step", "killed before the first step: its process ended"),
    ],
)
def test_the_end_of_a_run_is_a_symptom(state: RunState, symptom: str, words: str) -> None:
    (found,) = end_warnings(state)
    assert found.symptom == symptom
    assert words in found.text
    assert found.remedy


@pytest.mark.parametrize("status", ["trained", "stopped", "running", "aborted", "unknown"])
def test_other_ends_are_no_symptom(status: str) -> None:
    assert end_warnings(RunState(status, 3)) == []


def test_each_symptom_of_the_page_has_a_case() -> None:
    ends = {"Before the first step", "Out of memory"}
    assert {title for title, *_ in MADE} | ends == {each.title for each in SYMPTOMS}


CURVES = sorted(ROOT.glob("recipes/*/results/curve.csv"))


@pytest.mark.parametrize("file", CURVES, ids=lambda file: file.parts[-3])
def test_a_stored_run_that_learned_has_no_warning_at_any_step(file: Path) -> None:
    """Its success stands for the reward as well."""
    rows = list(csv.DictReader(file.read_text().splitlines()))
    for _, lines in groupby(rows, lambda row: row["run"]):
        points = [(int(each["step"]), float(each["success"])) for each in lines]
        steps = [{"step": step, "critic/score/mean": value, "agent/correctness": value} for step, value in points]
        for count in range(1, len(steps) + 1):
            assert run_warnings(steps[:count], {}) == []


QUICKSTART = Path(__file__).with_name("quickstart.jsonl")


def test_a_stored_quickstart_has_no_warning_at_any_step() -> None:
    steps = [json.loads(line) for line in QUICKSTART.read_text().splitlines()]
    assert len(steps) == 20
    assert HEALTHY.keys() - steps[0].keys() == {"agent/style", "actor/kl_loss", "timing_s/reward"}
    configuration = yaml.safe_load((ROOT / "recipes/quickstart/config.yaml").read_text())
    for count in range(1, len(steps) + 1):
        assert run_warnings(steps[:count], configuration) == []
    silent = [{**step, "agent/tool_calls": 0.0} for step in steps]
    assert [each.text for each in run_warnings(silent[:1], configuration)] == ["No tool was ever called."]


def test_a_constant_component_without_weight_is_no_symptom_even_if_it_is_logged_under_another_name() -> None:
    steps = [{"step": step, "agent/turns": 3.0 + step, "agent/turns_reward": 2.0} for step in range(30)]
    for weight, count in ((0, 0), (1, 1)):
        configuration = {"agent_rl": {"reward": {"components": {"turns": {"kind": "turns", "weight": weight}}}}}
        assert len(run_warnings(steps, configuration)) == count


@pytest.mark.parametrize(("agent", "count"), [("single_turn_agent", 0), ("tool_agent", 0), ("react_agent", 1)])
def test_loops_of_verl_whose_calls_are_not_counted_raise_no_warning_about_tools(agent: str, count: int) -> None:
    configuration = {"actor_rollout_ref": {"rollout": {"agent": {"default_agent_loop": agent}}}}
    assert len(run_warnings([{"step": 1, "agent/tool_calls": 0.0}], configuration)) == count


def test_a_few_steps_are_no_trend() -> None:
    assert warned(6, agent__style=lambda step: 0.5, actor__entropy=lambda step: 2.0 / step**3) == []


def test_values_that_are_no_numbers_do_not_count() -> None:
    assert warned(actor__kl_loss=lambda step: float("nan"), actor__entropy=lambda step: None) == []


if __name__ == "__main__":
    keys = {"step", "actor/ppo_kl", *(f"agent/{name}" for name in TERMS), *HEALTHY}
    kept = [{key: step[key] for key in sorted(keys & step.keys())} for step in read_metrics(Path(sys.argv[1]))]
    QUICKSTART.write_text("".join(f"{json.dumps(step)}\n" for step in kept if step["step"]))
