import io
import json

import pytest
from rich.console import Console

from agent_rl.data import arithmetic, iterate_rows
from agent_rl.evaluation.ledger import Record
from agent_rl.evaluation.summary import estimate_rate, summarize, table, write_difficulty


def record(row, sample, right, source="a", error=None):
    if error:
        return Record(row, sample, source, error, tokens={"input": 10, "sampled": 1, "requests": 1}, seconds=1.0)
    metrics = {"turns": 2.0, "answered": 1.0, "tool_calls": float(row)}
    tokens = {"input": 100, "sampled": 20, "requests": 3}
    return Record(row, sample, source, None, right - 0.1, {"correctness": right}, metrics, tokens, 2.0)


RECORDS = [record(0, 0, 1.0), record(0, 1, 0.0), record(1, 0, 1.0, "b"), record(1, 1, 1.0, "b")]


def test_estimates_are_over_rows():
    found = summarize(RECORDS, rows=2, n=2)["all"]
    assert (found["scored"], found["unscored"]) == (4, 0)
    assert found["pass"]["1"]["mean"] == 0.75
    assert found["pass"]["2"]["mean"] == 1.0
    assert found["reward"]["mean"] == pytest.approx(0.65)
    assert found["components"]["correctness"]["mean"] == 0.75
    assert found["metrics"]["answered"]["low"] == round(estimate_rate([[1.0], [1.0]]).low, 6)
    assert found["tokens"] == {"input": 400, "sampled": 80, "requests": 12}
    assert found["seconds"] == 8.0


def test_an_unscored_episode_does_not_count_as_zero():
    records = [record(0, 0, 1.0), record(0, 1, 0, error="down"), record(1, 0, 1.0), record(1, 1, 1.0)]
    summary = summarize(records, rows=3, n=2)
    found = summary["all"]
    assert (found["scored"], found["unscored"], summary["missing"]) == (3, 1, 2)
    assert found["pass"]["1"] == {**found["pass"]["1"], "mean": 1.0, "rows": 2}
    assert found["pass"]["2"]["rows"] == 1  # the other row has one sample only
    assert found["components"]["correctness"]["mean"] == 1.0
    assert summary["unscored"] == {"down": 1}


def test_nothing_scored_is_no_number():
    found = summarize([record(0, 0, 0, error="down")], rows=1, n=1)
    assert found["all"]["reward"] == {"mean": None, "low": None, "high": None, "rows": 0}
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert "unscored" in shown(found)


def shown(summary):
    file = io.StringIO()
    Console(width=120, file=file).print(table(summary, "title [of] it"))
    return file.getvalue()


def test_the_order_does_not_count():
    assert summarize(RECORDS[::-1], rows=2, n=2) == summarize(RECORDS, rows=2, n=2)


def test_the_table_has_a_column_for_each_source():
    summary = summarize(RECORDS, rows=2, n=2)
    assert set(summary["data_sources"]) == {"a", "b"}
    text = shown(summary)
    assert "title [of] it" in text
    header, *lines = [line for line in text.splitlines() if "┃" in line or "│" in line]
    assert [cell.strip() for cell in header.split("┃")[2:-1]] == ["all", "a", "b"]
    cells = {cell[0].strip(): [each.strip() for each in cell[1:]] for cell in (line[1:-1].split("│") for line in lines)}
    assert cells["pass@1"][0].startswith("0.750  [")
    assert cells["pass@1"][1:] == ["0.500", "1.000"]  # a single row has no interval
    assert cells["input tokens an episode"] == ["100.0"] * 3
    assert cells["episodes scored"] == ["4", "2", "2"]
    assert "seconds" not in text


def test_one_source_needs_no_column_of_its_own():
    assert summarize(RECORDS[:2], rows=1, n=2)["data_sources"] == {}


def test_each_row_gets_the_share_of_its_wrong_samples(tmp_path):
    rows = [arithmetic.to_row(each, "train", i) for i, each in enumerate(arithmetic.generate(0, 4))]
    rows[3]["extra_info"]["difficulty"] = 0.5
    records = [record(0, 0, 1), record(0, 1, 1), record(1, 0, 0), record(1, 1, 0.9), record(2, 0, 1), record(2, 1, 0)]
    records += [record(2, 2, 0, error="the engine failed"), record(3, 0, 0, error="the engine failed")]
    assert write_difficulty(records, rows, tmp_path / "rows.parquet") == 3
    written = [found.row for found in iterate_rows(str(tmp_path / "rows.parquet"))]
    assert [row["extra_info"]["difficulty"] for row in written] == [0.0, 1.0, 0.5, 0.5]
    assert [row["prompt"] for row in written] == [row["prompt"] for row in rows]
