import io
import itertools
import json
import math
import random
from dataclasses import replace
from statistics import NormalDist

import pytest
from rich.console import Console

from agent_rl.data import arithmetic, iterate_rows
from agent_rl.evaluation.ledger import Record
from agent_rl.evaluation.summary import ks, pass_at_k, summarize, table, write_difficulty
from agent_rl.trajectory.estimates import estimate_mean, estimate_rate


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


def test_a_metric_of_only_some_agents_is_a_mean_over_their_episodes():
    """Only the sessions of a gateway have some metrics, and each row may name its agent."""
    others = record(1, 0, 1.0)
    gateway = replace(record(0, 0, 1.0), metrics={**others.metrics, "gateway_sequences": 2.0})
    found = summarize([gateway, others], rows=2, n=1)["all"]["metrics"]
    assert found["gateway_sequences"] == {"mean": 2.0, "low": None, "high": None, "rows": 1}
    assert found["turns"]["rows"] == 2


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
    assert cells["input tokens per episode"] == ["100.0"] * 3
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


@pytest.mark.parametrize("samples", range(1, 8))
def test_pass_at_k_is_the_share_of_all_choices_with_a_right_one(samples):
    for right, k in itertools.product(range(samples + 1), range(1, samples + 1)):
        verdicts = [True] * right + [False] * (samples - right)
        choices = list(itertools.combinations(verdicts, k))
        assert pass_at_k(samples, right, k) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)


def test_ks_are_the_powers_of_two_and_n():
    assert [ks(n) for n in (1, 3, 10)] == [[1], [1, 2, 3], [1, 2, 4, 8, 10]]


def test_a_mean_over_rows():
    found = estimate_mean([[1.0, 3.0], [4.0], []])
    assert (found.mean, found.rows) == (3.0, 2)
    half = NormalDist().inv_cdf(0.975) * math.sqrt(2.0) / math.sqrt(2)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half))


def test_too_few_rows_have_no_interval():
    assert (estimate_mean([[1.0, 0.0]]).low, estimate_rate([[1.0, 0.0]]).low) == (None, None)
    assert math.isnan(estimate_mean([[], []]).mean)


def test_copies_of_a_sample_do_not_narrow_the_interval():
    once = estimate_rate([[1.0], [0.0], [1.0]])
    assert estimate_rate([[1.0] * 9, [0.0] * 9, [1.0] * 9]) == once


def test_a_rate_of_independent_rows_has_wilsons_interval():
    """Of 80 right in 100 by Wilson: the corrected variance stands for 99 independent rows."""
    z, n = NormalDist().inv_cdf(0.975), 99
    found = estimate_rate([[1.0]] * 80 + [[0.0]] * 20)
    centre, half = (0.8 + z * z / 2 / n), z * math.sqrt(0.16 / n + z * z / 4 / n / n)
    assert (found.low, found.high) == pytest.approx(
        ((centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n))
    )


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_interval_has_a_width_when_all_rows_agree(value):
    found = estimate_rate([[value]] * 20)
    assert found.mean == value
    assert 0 <= found.low < found.high <= 1
    assert found.high - found.low > 0.1


def test_the_interval_covers_what_it_should():
    """Rows of unlike difficulty with four samples each: the true rate is inside about 95 times in 100."""
    rng = random.Random(0)
    inside = 0
    for _ in range(400):
        difficulties = [rng.random() for _ in range(60)]
        found = estimate_rate([[float(rng.random() < each) for _ in range(4)] for each in difficulties])
        inside += found.low <= 0.5 <= found.high
    assert 0.91 <= inside / 400 <= 0.98
