"""Every row of the real data sets converts, its gold response scores 1.0, and that of another row scores 0."""

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import check_row, code, gsm8k, math_choice, math_dataset, preferences, search_qa
from agent_rl.data.sources import Raw, read_raw
from agent_rl.data.tool_calls import read_with_answers
from agent_rl.data.tool_calls import to_row as tool_row
from agent_rl.rewards.routing import route
from agent_rl.rewards.scorers import score_now
from agent_rl.rewards.scorers.qa import normalize_answer
from tests.data.golds import response
from tests.data.real import shared
from tests.support.profiles import FULL, bounded

pytestmark = [bounded, pytest.mark.slow]

PROGRAMS = ("HumanEval", "LeetCode")
FEW, SAMPLE = 5, 100
"""Rows of a set that are scored in `make test`; all of them convert, and all are scored in `make test-recipes`."""


@dataclass(frozen=True)
class RealSet:
    """A file of a real data set, and what of it is no right answer by its own truth."""

    file: str
    count: int
    to_row: Callable[..., dict[str, Any]]
    read: Callable[[Path], Iterator[Raw]] = read_raw
    wrong: Mapping[int, str] = field(default_factory=dict)
    """Rows whose gold response does not score 1.0, with the reason."""
    alike: Mapping[int, str] = field(default_factory=dict)
    """Rows for which the next differing gold scores more than 0, with the reason."""


JUDGED = partial(preferences.to_row, data_source="ScalerLab/JudgeBench")
SETS = {
    "gsm8k train": RealSet("gsm8k/train.jsonl", 7473, gsm8k.to_row),
    "gsm8k test": RealSet("gsm8k/test.jsonl", 1319, gsm8k.to_row),
    "MATH": RealSet("math/math_test_odd.jsonl", 2500, math_dataset.to_row, alike={2207: r"\$4 is 4"}),
    "MATH-500": RealSet("math/math500.jsonl", 500, math_dataset.to_row, alike={22: "x=5 is 5"}),
    "SVAMP": RealSet("math/svamp.jsonl", 1000, math_dataset.to_row),
    "MathQA": RealSet("math/mathqa.jsonl", 1000, math_choice.to_row),
    "HumanEval": RealSet("code/HumanEval.jsonl.gz", 164, code.to_row),
    "LeetCode": RealSet("code/leetcode_test_odd.jsonl.gz", 114, code.to_row),
    "NQ-open": RealSet("qa/nq_open_dev.jsonl", 3610, search_qa.to_row),
    **{
        f"BFCL {name}": RealSet(f"tools/BFCL_v4_{name}.json", count, tool_row, read_with_answers)
        for name, count in [
            ("simple_python", 400),
            ("multiple", 200),
            ("parallel", 200),
            ("parallel_multiple", 200),
            ("irrelevance", 240),
            ("multi_turn_base", 200),
        ]
    },
    "JudgeBench": RealSet("preferences/judgebench_gpt4o.jsonl", 350, JUDGED),
}


@pytest.fixture(scope="module")
def converted() -> dict[str, list[dict[str, Any]]]:
    return {}


@pytest.fixture
def rows(name: str, converted: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    if name in converted:
        return converted[name]
    real = SETS[name]
    rows = [real.to_row(raw.value, "test", number) for number, raw in enumerate(real.read(shared(real.file)))]
    return converted.setdefault(name, rows)


def chosen(name: str, count: int) -> list[int]:
    numbers, most = range(count), FEW if name in PROGRAMS else SAMPLE
    return list(numbers) if FULL else sorted(random.Random(name).sample(numbers, min(most, count)))


def score(row: Mapping[str, Any], text: str) -> float:
    info = {"data_source": row["data_source"], **row["extra_info"]}
    return float(score_now(route(row["data_source"]), text, row["reward_model"]["ground_truth"], info))


@pytest.mark.parametrize("name", SETS)
def test_all_rows_convert(name: str, rows: list[dict[str, Any]]) -> None:
    assert len(rows) == SETS[name].count
    for number, row in enumerate(rows):
        check_row(row, f"row {number}")


@pytest.mark.parametrize("name", SETS)
def test_a_gold_response_scores_one(name: str, rows: list[dict[str, Any]]) -> None:
    failed = [number for number in chosen(name, len(rows)) if score(rows[number], response(rows[number])) != 1.0]
    assert set(failed) <= set(SETS[name].wrong)
    assert len(SETS[name].wrong) <= len(rows) * 0.005


@pytest.mark.parametrize("name", SETS)
def test_the_next_gold_response_that_differs_scores_zero(name: str, rows: list[dict[str, Any]]) -> None:
    found = []
    for number in chosen(name, len(rows)):
        others = (rows[(number + step) % len(rows)] for step in range(1, len(rows)))
        other = next((each for each in others if not is_same(rows[number], each)), None)
        if other is not None and score(rows[number], response(other)) != 0.0:
            found.append(number)
    assert set(found) <= set(SETS[name].alike)
    assert len(SETS[name].alike) <= len(rows) * 0.005


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both rows have the same truth.

    Of questions with several answers, whether one answers both; of LeetCode, whether one is the other with larger
    limits (`fruits-into-baskets-ii` and `-iii`), so that its program solves both.
    """
    left, right = (each["reward_model"]["ground_truth"] for each in (one, other))
    if one["ability"] == "search":
        return bool({*map(normalize_answer, left)} & {*map(normalize_answer, right)})
    if one["ability"] == "code":
        return len({re.sub(r"-i+$", "", str(each["extra_info"]["task_id"])) for each in (one, other)}) == 1
    return bool(left == right)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_empty_function_fails(name: str, rows: list[dict[str, Any]]) -> None:
    for number in chosen(name, len(rows)):
        tests = rows[number]["reward_model"]["ground_truth"]
        function = tests["entry_point"].removeprefix("Solution().")
        text = f"def {function}(*args, **kwargs):\n    pass\n"
        if "Solution" in tests["entry_point"]:
            text = f"class Solution:\n    {text.replace('(*', '(self, *').replace('    pass', '        pass')}"
        assert score(rows[number], f"```python\n{text}```") == 0.0


def test_all_preferences_convert() -> None:
    raws = list(read_raw(shared("preferences/hh_rlhf_harmless_base_test.jsonl.gz")))
    for judge in (False, True):
        rows = [preferences.to_row(raw.value, "test", n, data_source="hh", judge=judge) for n, raw in enumerate(raws)]
        assert len(rows) == 2312
        assert all(row["prompt"][-1]["role"] == "user" for row in rows)
    assert [row["reward_model"]["ground_truth"] for row in rows[:3]] == ["A", "B", "A"]
