import asyncio
import json
from typing import Any

import numpy as np
import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards import compute_score
from agent_rl.rewards.scorers import SCORERS, score_answer
from agent_rl.rewards.scorers.code import extract_code

ADD = "Here:\n```python\ndef add(a, b):\n    return a + b\n```\nDone."
WRONG_ON_NEGATIVES = "```python\ndef add(a, b):\n    return abs(a) + b\n```"
CALLS = {"inputs": [[1, 2], [-1, 2]], "outputs": [3, 1], "fn_name": "add"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```\n```python\nb\n```", "b"),
        ("```python\na\n```\n```\noutput\n```", "a"),
        ("```\na\n```", "a"),
        ("```cpp\nint x;\n```\n```py\nb\n```", "b"),
        ("```python\ncut", "cut"),
        ("print(1)", "print(1)"),
        ("x" * 100_001, ""),
    ],
)
def test_the_program_is_found(text: str, code: str) -> None:
    assert extract_code(text) == code


@pytest.mark.parametrize(
    "truth",
    [
        CALLS,
        json.dumps(CALLS),
        ["assert add(1, 2) == 3", "assert add(-1, 2) == 1"],
        "assert add(1, 2) == 3\nassert add(-1, 2) == 1\n",
        {"assert_case": ["assert add(1, 2) == 3", "assert add(-1, 2) == 1"]},
        np.array(["assert add(1, 2) == 3", "assert add(-1, 2) == 1"], dtype=object),
    ],
    ids=["data", "JSON", "list", "lines", "verl's assert_case", "array"],
)
def test_every_form_of_tests_is_read(truth: Any) -> None:
    async def both() -> list[Any]:
        return [
            await score_answer(SCORERS[name], text, truth)
            for name in ("code", "code_all")
            for text in (ADD, WRONG_ON_NEGATIVES, "")
        ]

    assert asyncio.run(both()) == [1.0, 0.5, 0.0, 1.0, 0.0, 0.0]


def test_programs_that_read_and_print() -> None:
    truth = json.dumps({"inputs": ["1 2\n", "0.1 0.2\n"], "outputs": ["3.0\n", "0.3\n"]})
    text = "```python\nprint(sum(map(float, input().split())))\n```"
    assert compute_score("taco", text, truth) == 1.0


@pytest.mark.parametrize("truth", [None, "", "no tests", [], {"inputs": []}, ["assert f() > 1"], "[" * 100_000, 5])
def test_tests_that_cannot_be_read_are_unscored(truth: Any) -> None:
    with pytest.raises(UnscoredError, match="ground truth is not a list of tests"):
        asyncio.run(score_answer(SCORERS["code"], ADD, truth))
