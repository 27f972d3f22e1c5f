"""What is found in data files: rows that break the contract, that are asked twice, and what they are like."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agent_rl.data import RowWriter, arithmetic, read_parquet
from agent_rl.data.check import DataReport, RowFinding, Rows, check_files, write_good
from agent_rl.data.files import NumberedRow


def rows(seed: int, count: int, split: str = "train") -> list[dict[str, Any]]:
    return [arithmetic.to_row(each, split, i) for i, each in enumerate(arithmetic.generate(seed, count))]


def numbered(path: str, its: Iterable[dict[str, Any]]) -> Iterator[NumberedRow]:
    for number, row in enumerate(its):
        yield NumberedRow(f"{path}, row {number}", number, row, ())


def check(known: Rows | None = None, **files: list[dict[str, Any]]) -> DataReport:
    known = known or Rows()
    report, drawn = check_files({path: numbered(path, its) for path, its in files.items()}, known)
    report.grade(drawn, known)
    return report


def test_good_rows_have_no_findings_and_are_counted_by_label() -> None:
    train = rows(0, 30)
    for number, row in enumerate(train):
        row["extra_info"]["difficulty"] = (number % 3) / 2
    report = check(train=train, test=rows(1, 10, "test"))
    assert (report.counts, report.errors, report.rows) == ({}, set(), [30, 10])
    labels = report.labels()
    assert labels["difficulty"]["rows"].to_dict() == {"0.0": 10, "0.5": 10, "1.0": 10, "(none)": 10}
    (its,) = labels["data_source"].itertuples()
    lengths = [len(row["prompt"][0]["content"]) for row in train + rows(1, 10, "test")]
    assert (its.rows, its.longest, its.mean) == (40, max(lengths), pytest.approx(sum(lengths) / 40))
    assert (its.median, its.most) == (sorted(lengths)[19], sorted(lengths)[37])


def test_each_kind_of_mistake_is_found_at_its_row() -> None:
    train, test = rows(0, 30), rows(1, 10, "test")
    train[3]["prompt"] = []
    train[5]["reward_model"] = {"style": "rule", "ground_truth": "another"}
    train[6]["prompt"] = train[5]["prompt"]
    train[9] = copy.deepcopy(train[8])
    test[2]["prompt"], test[2]["reward_model"] = train[11]["prompt"], train[11]["reward_model"]
    report = check(train=train, test=test)
    assert dict(report.counts) == {"row contract": 1, "two ground truths": 2, "duplicate": 1, "in two splits": 1}
    assert set(report.bad) == {(0, 3), (0, 5), (0, 6), (1, 2)}
    assert report.errors == {"row contract", "two ground truths", "in two splits"}
    ((place, finding),) = report.shown["row contract"]
    assert place == "train, row 3"
    assert "prompt" in finding.text
    ((place, finding),) = report.shown["in two splits"]
    assert (place, finding.text) == ("test, row 2", "train, row 11 asks the same question")


def test_rows_are_counted_once_for_each_kind_of_mistake() -> None:
    train = rows(0, 3)
    for row in train[1:]:
        row["prompt"] = train[0]["prompt"]

    def names(row: Any) -> Iterator[RowFinding]:
        yield from (RowFinding("tool", f"there is no {name}", "Name another") for name in ("saw", "axe"))

    read = [each._replace(changes=["one", "two"]) for each in numbered("train", train)]
    report, _ = check_files({"train": read}, Rows(names=names))
    assert report.counts == {"converted when read": 3, "tool": 3, "two ground truths": 3}
    assert [finding.text for _, finding in report.shown["tool"]] == ["there is no saw", "there is no axe"] * 2 + [
        "there is no saw"
    ]
    lines = sorted(line.plain for line in report.lines())
    assert "two ground truths, 3 rows: train, row 1: row 0 asks" in lines[0] + lines[1]
    assert lines[0].endswith("Also train, row 1; train, row 2")
    assert lines[2] == (
        "note  converted when read, 3 rows: train, row 0: one; two. No action needed. Also train, row 1; train, row 2"
    )


def test_a_row_in_two_files_of_one_split_is_worth_a_look_only() -> None:
    train = rows(0, 8)
    report = check(one=train, two=train[:1])
    assert dict(report.counts) == {"duplicate": 1}
    assert not report.errors


@pytest.mark.parametrize(
    ("change", "is_repeated"),
    [
        ({}, True),
        ({"prompt": [{"role": "user", "content": "How many  apples\nare left?"}]}, True),
        ({"prompt": [{"role": "user", "content": "How many APPLES are left?"}]}, False),
        ({"extra_info": {"index": 1, "tools_kwargs": {"sql": {"create_kwargs": {"database": "b"}}}}}, False),
        ({"extra_info": {"index": 1, "functions": [{"name": "count", "parameters": {}}]}}, False),
        ({"extra_info": {"index": 1, "user": {"replies": ["7"]}}}, False),
        ({"extra_info": {"index": 1, "environment": "lockers", "environment_row": '{"code": 7}'}}, False),
    ],
)
def test_rows_with_the_same_words_and_tools_are_repeated(change: dict[str, Any], is_repeated: bool) -> None:
    row = rows(0, 1)[0] | {"prompt": [{"role": "user", "content": "How many apples are left?"}]}
    assert dict(check(train=[row, row | change]).counts) == ({"duplicate": 1} if is_repeated else {})


def test_rows_get_the_columns_that_the_run_gives_them() -> None:
    train = rows(0, 3)
    for row in train:
        del row["agent_name"]
    known = Rows(defaults={"agent_name": "react_agent"}, length=lambda row: len(row["agent_name"]))
    assert {row[-1] for row in check(known, train=train).lengths} == {len("react_agent")}


def test_what_the_caller_knows_is_asked_of_each_row() -> None:
    def names(row: Any) -> Iterator[RowFinding]:
        if row["extra_info"]["index"] == 4:
            yield RowFinding("tool", "there is no such tool", "Name another")

    def length(row: Any) -> int:
        if row["extra_info"]["index"] == 5:
            raise ValueError("Conversation roles must\nalternate")
        return 7

    report = check(Rows(names=names, length=length, unit="tokens"), train=rows(0, 9))
    assert dict(report.counts) == {"tool": 1, "prompt": 1}
    assert (
        report.shown["prompt"][0][1].text == "the chat template rejects the prompt: Conversation roles must alternate"
    )
    assert report.labels()["ability"].loc["math", "mean"] == 7


@pytest.mark.parametrize(("sample", "graded"), [(None, 20), (6, 6), (100, 20)])
def test_a_seeded_sample_of_the_rows_is_graded(sample: int | None, graded: int) -> None:
    seen: list[list[int]] = []

    def grade(its: Any) -> Iterator[tuple[int, int, RowFinding]]:
        seen.append([number for _, number, _ in its])
        yield 0, seen[-1][0], RowFinding("ground truth", "it scores 0", "Correct it")

    for seed in (0, 0, 1):
        report = check(Rows(grade=grade, sample=sample, seed=seed), train=rows(0, 20))
        assert report.graded == graded
        assert report.bad == {(0, seen[-1][0]): "ground truth: it scores 0"}
    assert len(seen[0]) == graded
    assert seen[0] == seen[1] == sorted(set(seen[0]))
    assert (seen[0] == seen[2]) == (graded == 20)


def test_good_rows_are_written_and_the_others_kept_with_reasons(tmp_path: Path) -> None:
    train = rows(0, 6)
    train[1]["prompt"] = []
    report = check(train=train)
    read = [*train[:5], train[5] | {"level": "hard"}]
    with RowWriter(tmp_path / "good.parquet") as writer:
        write_good(report, {"train": numbered("train", read)}, writer.write, tmp_path / "rejected.jsonl")
    train[5]["extra_info"]["level"] = "hard"
    assert read_parquet(tmp_path / "good.parquet") == train[:1] + train[2:]
    (rejected,) = map(json.loads, (tmp_path / "rejected.jsonl").read_text().splitlines())
    assert (rejected["file"], rejected["row"], rejected["content"]) == ("train", 1, train[1])
    assert rejected["reason"].startswith("row contract: ")


def test_only_some_findings_are_kept_and_all_are_counted() -> None:
    train = rows(0, 50)
    for row in train:
        row["prompt"] = []
    report = check(train=train)
    assert report.counts["row contract"] == 50
    assert len(report.shown["row contract"]) == 5
    assert json.loads(json.dumps(report.to_dict()))["findings"][0]["rows"] == 50


HOSTILE = '<script>alert("1")</script>[red]'


def a_report() -> DataReport:
    found = DataReport(["train.parquet"], "tokens", [40])
    found.lengths += [(f"{HOSTILE}{number}", None, None, number * 50) for number in range(40)]
    found.add(0, 3, RowFinding(HOSTILE, HOSTILE, HOSTILE))
    found.add(0, 4, RowFinding("duplicate", "row 3 asks the same", "Keep one", is_error=False))
    return found


def shown(found: DataReport) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(found.table())
    for finding in found.lines():
        console.print(finding, soft_wrap=True)
    return console.export_text()


def test_many_values_of_a_label_are_shown_together() -> None:
    text = shown(a_report())
    assert text.count("data_source <script>") == 30
    assert "data_source (others: 10)" in text


def test_a_remedy_that_ends_with_a_full_stop_gets_no_second_one() -> None:
    found = a_report()
    for row in (5, 6):
        found.add(0, row, RowFinding("agent", "'x' is not registered", "None of the 30 known names is similar."))
    assert "None of the 30 known names is similar. Also train.parquet, row 6" in shown(found)


def test_the_terminal_shows_numbers_the_first_row_of_each_finding_and_where_more_are() -> None:
    found = a_report()
    found.add(0, 9, RowFinding("duplicate", "row 3 asks the same", "Keep one", is_error=False))
    text = shown(found)
    assert "40 rows in 1 file" in text
    assert f"error {HOSTILE}, 1 row: train.parquet, row 3: {HOSTILE}. {HOSTILE}" in text
    assert "note  duplicate, 2 rows: train.parquet, row 4: row 3 asks the same" in text
    assert "Keep one. Also train.parquet, row 9\n" in text
