"""What a long command shows on stderr without a terminal, and the file of its finished pieces."""

import contextlib
from pathlib import Path

import pytest

from agent_rl.work import progress
from agent_rl.work.store import pieces


def test_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.progress("rows", 2_000, 100) as advance:
        for _ in range(70):
            now[0] += 1
            advance(10, "reward +0.5")
    assert capsys.readouterr() == (
        "",
        "rows: 150 of 2,000, 0:00:05, reward +0.5\nrows: 450 of 2,000, 0:00:35, reward +0.5\n"
        "rows: 750 of 2,000, 0:01:05, reward +0.5\n",
    )


def test_pieces_do_without_a_file(here: Path) -> None:
    (here / "outputs").write_text("a file, where a folder should be")
    with pieces("rows", 2, "work") as kept:
        kept.add(1, "second")
        assert (kept.store, len(kept), kept[1]) == (None, 1, "second")


def test_pieces_belong_to_one_work(here: Path) -> None:
    (here / "rows.jsonl").write_text("{}")

    def found(work: object) -> int:
        with contextlib.suppress(ValueError), pieces("rows", 3, work) as kept:
            before = len(kept)
            kept.add(before, {"score": 1})
            raise ValueError
        return before

    work = {"words": ["rows.jsonl", "scorer=rows.jsonl:score"]}
    assert [found(work), found(work)] == [0, 1]
    assert found({"words": ["other.jsonl"]}) == 0
    (here / "rows.jsonl").write_text("[]")
    assert found(work) == 0
