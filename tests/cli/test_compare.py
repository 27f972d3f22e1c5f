"""Two evaluations, runs or steps, compared row by row."""

from pathlib import Path
from typing import Any

import pytest

from agent_rl.errors import ConfigError
from agent_rl.trajectory import Message, Score, StopReason, Trajectory, Turn, trace
from tests.support.cli import printed, shown

Values = dict[int, list[float]]
"""The correctness of each row's samples."""


def write(file: Path, values: Values, split: str = "test", step: int | None = None) -> None:
    for row, samples in values.items():
        for number, value in enumerate(samples):
            info = {"index": row, "split": split, **({} if step is None else {"step": step})}
            score = Score(value, {"correctness": value}, {"correctness": 1.0})
            one = Trajectory([Message("user", f"{row}?")], StopReason.ANSWERED, [Turn("x")], score=score, info=info)
            one.id, one.data_source = f"{step}_{row}_{number}", "sums"
            trace.append(file, one)


@pytest.fixture
def evaluations(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ten rows with two samples each, of which the second side has nine and another one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(here))
    for name in ("before", "after"):
        Path(name).mkdir()
    write(Path("before/trajectories.jsonl"), {row: [0, row % 2] for row in range(10)})
    write(Path("after/trajectories.jsonl"), {row: [1, row % 2] if row < 7 else [0, row % 2] for row in range(1, 11)})
    return ["before", "after"]


def measures(*places: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = printed("compare", *places)["measures"]
    return found


def test_samples_are_averaged_and_only_shared_rows_count(evaluations: list[str]) -> None:
    change = measures(*evaluations)["correctness"]
    assert (change["a"], change["b"]) == (pytest.approx(5 / 18), pytest.approx(11 / 18))
    assert (change["better"], change["worse"], change["difference"]["rows"]) == (6, 0, 9)
    assert change["difference"]["mean"] == pytest.approx(1 / 3)
    assert change["p"] == pytest.approx(2 * 0.5**6)
    assert 0 < change["difference"]["low"] < 1 / 3


def test_the_command_prints_a_row_for_each_measure(evaluations: list[str]) -> None:
    text = shown("compare", *evaluations, env={"COLUMNS": "80"})
    assert "9 rows" in text
    row = next(line for line in text.splitlines() if "correctness" in line).split()
    assert row == ["correctness", "0.278", "0.611", "+0.333", "+0.17", "to", "+0.497", "6", "0", "0.031"]
    assert measures(*evaluations)["turns"]["difference"]["mean"] == 0


def test_the_name_of_a_run_may_contain_an_at_sign(tmp_path: Path) -> None:
    run = tmp_path / "qwen@1e-6.jsonl"
    for step, value in ((1, 0.25), (2, 1.0)):
        write(run, {row: [value] for row in range(4)}, step=step)
    change = measures(f"{run}@1", str(run))["correctness"]
    assert (change["a"], change["b"]) == (0.25, 1)


def test_one_run_is_its_first_against_its_last_validation(tmp_path: Path) -> None:
    run = tmp_path / "trace.jsonl"
    for step, value in ((0, 0.0), (1, 0.3), (2, 1.0)):
        write(run, {row: [value] for row in range(4)}, step=step)
        write(run, {100 + step: [0.5]}, "train", step)
    for places, a, b in (((str(run),), 0, 1), ((f"{run}@1", str(run)), 0.3, 1)):
        change = measures(*places)["correctness"]
        assert (change["a"], change["b"]) == (pytest.approx(a), b)


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        (["before"], "no row has a scored sample in both"),
        (["before", "after", "before"], "3 runs or evaluations were given"),
        (["before", "elsewhere"], "elsewhere: the folder contains no trajectories"),
        (["before", "other"], "no row has a scored sample in both"),
    ],
)
def test_what_cannot_be_compared_is_named(places: list[str], problem: str, evaluations: list[str]) -> None:
    Path("elsewhere").mkdir()
    Path("other").mkdir()
    write(Path("other/trajectories.jsonl"), {50: [1]})
    with pytest.raises(ConfigError, match=problem):
        shown("compare", *places)
