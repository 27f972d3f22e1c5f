"""Whatever the policy writes, a scorer gives a score within its limits; a useless ground truth is the row's fault."""

import asyncio
import json
import math
from typing import Any

import pytest

from agent_rl.rewards import find_scorer
from agent_rl.rewards.scorers import SCORERS, GroundTruthError, Scorer, score_answer, score_now

pytestmark = pytest.mark.slow

N = 10**6
TABLES = {"t": [{"a": 1}]}
OPTIONS: dict[str, dict[str, Any]] = {
    "gsm8k, marked": {"name": "gsm8k", "answer": "marked"},
    "gsm8k, strict": {"name": "gsm8k", "answer": "strict"},
    "math, strict": {"name": "math", "strict": True},
    "code, all or nothing": {"name": "code", "all_or_nothing": True},
    "tool_match, all or nothing": {"name": "tool_match", "all_or_nothing": True},
}
TRUTHS: dict[str, Any] = {
    "gsm8k": "18",
    "gsm8k, marked": "18",
    "gsm8k, strict": "18",
    "math": "18",
    "math, strict": "x^2+y^2=18",
    "qa_em": ["18"],
    "qa_f1": ["18"],
    "qa_substring": ["18"],
    "choice": "B",
    "reasoning_gym": {"question": "9 * 2?", "answer": "18", "metadata": {"source_dataset": "leg_counting"}},
    "code": [{"stdin": "", "expected": "18"}],
    "code, all or nothing": [{"stdin": "", "expected": "18"}],
    "tool_match": [{"name": "f", "arguments": {}}],
    "tool_match, all or nothing": [{"name": "f", "arguments": {}}],
    "sql_match": {"sql": "SELECT a FROM t", "tables": TABLES},
    "json_schema": {"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}, "required": ["a"]},
    "text_rules": {"patterns": ["^(a+)+$", "(x+x+)+y"], "all_of": ["18"]},
}
TEXTS = {
    "digits": "1" * N,
    "groups of digits": "1" + ",222" * N,
    "powers of ten": "1 x 10^" * (N // 7),
    "a long fraction": "1 " + "9" * N,
    "letters": "a" * N,
    "no match": "a" * 5000 + "!",
    "words": "the answer is " * (N // 14),
    "spaces": " " * N,
    "lines": "\n" * N,
    "brackets": "(" * N,
    "closed brackets": "\\boxed{" + "(" * 400 + ")" * 400 + "}",
    "many closed brackets": "\\boxed{" + "(" * (N // 2) + ")" * (N // 2) + "}",
    "braces": "\\boxed{" * (N // 7),
    "nested boxes": "\\boxed{" * 2000 + "1" + "}" * 2000,
    "boxes": "\\boxed{1} and " * (N // 14),
    "open tags": "<answer>" * (N // 8),
    "closed tags": "</answer>" * (N // 9),
    "tags": "<answer>1</answer>" * (N // 18),
    "tower": "\\boxed{9^{9^{9^{9}}}}",
    "python tower": "\\boxed{9**9**9**9}",
    "power": "\\boxed{" + "9" * 200 + "^" + "9" * 200 + "}",
    "factorials": "\\boxed{99999!!!}",
    "exponent": "\\boxed{1e999999999}",
    "binomial": "\\boxed{\\binom{10^9}{10^8}}",
    "sums": "\\boxed{" + "1+" * 450 + "1}",
    "fractions": "\\boxed{" + "\\frac{1}{" * 45 + "1" + "}" * 45 + "}",
    "commas": "\\boxed{" + ",".join(map(str, range(200))) + "}",
    "signs": "\\boxed{" + "-" * 990 + "1}",
    "plus minus": "\\boxed{" + "\\pm" * 60 + "1}",
    "long sum": "\\boxed{\\sum_{k=1}^{10^{9}} k^k}",
    "integral": "\\boxed{\\int_0^1 x^{x^{x^x}} dx}",
    "matrix": "\\boxed{\\begin{pmatrix}" + "1&" * 400 + "1\\end{pmatrix}}",
    "null bytes": "\\boxed{1\x008}\x00" * 1000,
    "surrogates": "\\boxed{1\ud8008}",
    "surrogates in a sum": "\\boxed{\\sum_{k=\ud800}^{3} k}",
    "right to left": "\\boxed{\u202e81}",
    "marks": "#### " * (N // 5),
    "deep JSON": "[" * 100_000 + "]" * 100_000,
    "long number in JSON": '{"a": ' + "1" * 10_000 + "}",
    "catastrophe in JSON": '{"a": "' + "a" * 40 + '!"}',
    "call": "<tool_call>" * (N // 11),
    "calls": '<tool_call>{"name": "f", "arguments": {}}</tool_call>' * 5000,
    "query": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c",
    "long query": "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "large value": "SELECT hex(zeroblob(1000000000))",
    "fences": "```" * (N // 3),
    "fenced lines": "```\n" * (N // 4),
}


def scorer_of(name: str) -> Scorer:
    return find_scorer(OPTIONS.get(name, name))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_every_scorer_ends_with_a_score(text: str) -> None:
    assert {scorer_of(name).name for name in TRUTHS} == SCORERS.keys()
    names = [name for name in TRUTHS if not name.startswith("code")]
    scores = {name: await asyncio.wait_for(score_answer(scorer_of(name), text, TRUTHS[name]), 60) for name in names}
    assert all(math.isfinite(score) and 0 <= score <= 1 for score in scores.values()), scores


@pytest.mark.parametrize(
    "text",
    ["while True: pass", "```python\n" + "(" * N, "x = 9**9**9", "print('18')\n" * 10, "a" * N, "\x00", "\ud800"],
)
def test_programs_end_too(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_rl.rewards.scorers.code.CASE_S", 1.0)
    for name in ("code", "code, all or nothing"):
        assert asyncio.run(score_answer(scorer_of(name), text, TRUTHS[name])) == 0.0


OTHER_TRUTHS: dict[str, list[Any]] = {
    "choice": [2],
    "gsm8k": ["1/2"],
    "json_schema": [{"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 3}}}],
    "math": ["\\frac{1}{2}", "(1, 2)", "x^2+1", "\\{1, 2\\}"],
    "math, strict": ["\\frac{1}{2}", "(1, 2)", "\\sqrt{3}", r"\frac{\sqrt{3}}{2}"],
    "tool_match, all or nothing": [[{"name": "f", "arguments": {"x": 10**400}}]],
}
GARBAGE = [
    *("", " \n\t", "\x00", "\ud800", "é\u202e\U0001f600", "1e-999999999", "nan", "inf", "1/0", "0/0", "²³", "٤٢", "①"),
    *("\\boxed{}", "\\boxed{\\frac{1}{0}}", "10^{10^{10^{10}}}", "#### ", "#### \ud800", "<answer></answer>"),
    "<answer>" + "[" * 3000,
    '{"a": ' * 2000,
    '{"a": 1e400}',
    '{"a": NaN}',
    '[{"name": "f", "arguments": {"x": ' + "9" * 5000 + "}}]",
    '[{"name": "f", "arguments": {"x": 1}, "optional": 3}]',
    '<tool_call>{"name": "f", "optional": [[1]]}</tool_call>',
    '[{"name": null, "arguments": 3}]',
    "[1, null, [], {}]",
    *("null", "SELECT", "SELECT \x00", "SELECT '\ud800'", "```sql\nSELECT 9e999\n```"),
    *("```python\n\x00\n```", "```python\n\ud800\n```", "```python\n" + "(" * 3000 + "\n```"),
]
USELESS = [None, "", [], {}, 3, 2.5, True, b"x", "\ud800", "{", "[1]", "null", [None], {"a": 1}, "9" * 5000, math.nan]


@pytest.mark.parametrize("name", sorted(TRUTHS))
async def test_garbage_is_scored_and_a_useless_ground_truth_is_the_rows_fault(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = [(truth, text) for truth in [TRUTHS[name], *OTHER_TRUTHS.get(name, ())] for text in GARBAGE]
    scores = [await score_answer(scorer_of(name), text, truth) for truth, text in pairs]
    useless = (score_answer(scorer_of(name), "42", truth) for truth in USELESS)
    outcomes = await asyncio.gather(*useless, return_exceptions=True)
    assert all(0 <= score <= 1 for score in scores)
    assert "cannot read" not in caplog.text  # by the scorer's own rule, not for the lack of one
    assert all(isinstance(outcome, float | GroundTruthError) for outcome in outcomes)


def test_an_answer_that_makes_a_built_in_scorer_raise_is_worth_0(caplog: pytest.LogCaptureFixture) -> None:
    (truth,) = OTHER_TRUTHS["tool_match, all or nothing"]  # too large to compare with 1.5
    answer = json.dumps([{"name": "f", "arguments": {"x": 1.5}}])
    assert asyncio.run(score_answer(SCORERS["tool_match"], answer, truth)) == 0.0
    assert score_now(SCORERS["tool_match"], answer, truth) == 0.0
    assert "the tool_match scorer returned 0 for an answer that it cannot read" in caplog.text
