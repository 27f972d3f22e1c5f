"""Which files can be viewed, and records of other programs in our form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.trajectory.viewer.records import find_sources, in_our_form, newest_run
from tests.trajectory.viewer.conftest import trajectory


def test_a_runs_folder_has_its_trace_or_else_its_rollouts(run: Path, tmp_path: Path) -> None:
    for folder in (run, tmp_path / "other"):
        (folder / "rollouts").mkdir(parents=True)
        (folder / "rollouts/1.jsonl").touch()
    found = find_sources([str(run), str(run / "trace.jsonl"), str(tmp_path / "other")])
    assert [source.name for source in found] == ["my_run/trace.jsonl", "rollouts/1.jsonl"]
    found = find_sources([str(folder / "rollouts") for folder in (run, tmp_path / "other")])
    assert [source.name for source in found] == ["my_run/rollouts/1.jsonl", "other/rollouts/1.jsonl"]


def test_a_run_that_has_just_begun_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "run.json").touch()
    assert [source.path.name for source in find_sources([str(tmp_path)])] == ["trace.jsonl"]


def test_the_newest_run_is_the_one_that_started_last_even_if_another_has_ended_since(tmp_path: Path) -> None:
    for name, starts in (
        ("second", ["2026-03-01T10:00:00+0100", "2026-03-01T12:00:00+0100"]),
        ("first", ["2026-03-01T10:30:00+0000"]),  # ended, and was written, last
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps({"started": starts}))
    assert newest_run(tmp_path) == str(tmp_path / "second")


@pytest.mark.parametrize(("name", "said"), [("no_such", "no such file"), (".", "contains no trajectories")])
def test_what_cannot_be_viewed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        find_sources([name])


def test_our_own_record_is_as_it_is() -> None:
    record = trajectory(0, 0).to_dict()
    assert in_our_form(record) is record


def test_a_line_of_verls_dump_is_divided_at_its_roles() -> None:
    line = {
        "input": "system\nYou are careful.\nuser\nWhat is 6*7?\nassistant\n",
        "output": "I calculate.\ntool\n42\nassistant\nIt is 42.",
        "gts": "42", "score": 0.9, "step": 3, "acc": 1.0, "stop_answered": 1.0, "stop_error": 0.0,
    }  # fmt: skip
    found = in_our_form(line)
    assert [message["role"] for message in found["prompt"]] == ["system", "user"]
    assert found["turns"] == [{"text": "I calculate.", "observation": "42"}, {"text": "It is 42."}]
    assert (found["score"]["total"], found["info"]["step"], found["stop_reason"]) == (0.9, 3, "answered")


@pytest.mark.parametrize("record", [[], "x", 3, {}, {"turns": []}, {"steps": []}, json.loads('{"input": 1}')])
def test_anything_else_is_no_trajectory(record: object) -> None:
    with pytest.raises(ValueError, match="not a trajectory"):
        in_our_form(record)
