"""Ground truths are held against their scorers and each other; names that nothing has are in checks/test_data.py."""

from pathlib import Path
from typing import Any

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.data import make_row
from agent_rl.data.check import RowFinding
from agent_rl.launch.doctor.rows import known_rows
from agent_rl.settings import AgentRLSettings


def row(number: int = 0, truth: Any = "42", source: str = "openai/gsm8k", **more: Any) -> dict[str, Any]:
    return make_row(
        question=f"Which is number {number}?",
        data_source=source,
        ground_truth=truth,
        split="train",
        index=number,
        **more,
    )


def graded(*its: dict[str, Any], **settings: Any) -> list[tuple[int, RowFinding]]:
    known = known_rows(EpisodeSetup(AgentRLSettings.from_config({"agent_rl": settings})))
    return [(number, finding) for _, number, finding in known.grade([(0, i, each) for i, each in enumerate(its)])]


def test_a_ground_truth_that_its_scorer_does_not_take_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def score(solution_str, ground_truth): return solution_str != '42'\n")
    mine = {"correctness": {"scorer": f"{tmp_path / 'mine.py'}:score"}}
    ((number, finding),) = graded(row(0, "42"), reward=mine)
    assert (number, finding.kind, finding.is_error) == (0, "ground truth", True)
    assert "scores 0: '42'" in finding.text


def test_a_ground_truth_that_takes_another_rows_answer_is_found() -> None:
    found = graded(row(0, "42"), row(1, "42.0"), row(2, "7"))
    assert {(number, finding.kind, finding.is_error) for number, finding in found} == {
        (0, "another's ground truth", False), (1, "another's ground truth", False),
    }  # fmt: skip


def test_rows_that_nothing_can_answer_from_their_truth_are_left_alone() -> None:
    assert graded(row(0, '{"inputs": ["1"], "outputs": ["1"]}', "taco")) == []
