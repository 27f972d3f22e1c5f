"""Every ground truth of the real data sets: its published solution scores 1, and what is not equal to it scores 0.

In `make test` a part of the ground truths is taken, with a fixed seed.
"""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from agent_rl.data.boxes import last_boxed
from agent_rl.data.sources import read_raw
from agent_rl.rewards.scorers import SCORERS, Scorer, score_now
from tests.data.golds import call_of
from tests.data.real import shared
from tests.support.profiles import bounded, times

MARKED, STRICT = SCORERS["gsm8k"].using(answer="marked"), SCORERS["math"].using(strict=True)
CONSTANTS = ("0", "1", "-1", "2", "x")
OTHERS = 20


def lines(name: str) -> list[dict[str, Any]]:
    return [raw.value for raw in read_raw(shared(name))]


def solutions(name: str) -> list[tuple[str, str]]:
    """The published solution and the ground truth of each row."""
    rows = lines(name)
    match name.partition("/")[0], name:
        case "gsm8k", _:
            return [(row["answer"], row["answer"].rpartition("####")[2].strip()) for row in rows]
        case _, "math/svamp.jsonl":
            return [
                (f"{row['Body']} {row['Equation']} = \\boxed{{{row['Equation']}}}", repr(row["Answer"])) for row in rows
            ]
        case _, "math/math500.jsonl":
            return [(row["solution"], row["answer"]) for row in rows]
    return [(row["solution"], last_boxed(row["solution"], joined=True) or "") for row in rows]


EXPLAINED = {
    "math/svamp.jsonl": {"( ( 4.0 - 2.0 ) + 3.0 )"},  # the row says that this is 1
    "math/math500.jsonl": set[str](),
}


@pytest.mark.parametrize("name", ["gsm8k/train.jsonl", "gsm8k/test.jsonl"])
def test_published_solutions_of_gsm8k_are_right(name: str) -> None:
    for scorer in (MARKED, SCORERS["gsm8k"], SCORERS["gsm8k"].using(answer="strict"), STRICT):
        wrong = [truth for text, truth in solutions(name) if score_now(scorer, text, truth) != 1]
        assert wrong == [], scorer


@pytest.mark.parametrize("name", ["math/math_test_odd.jsonl", "math/math500.jsonl", "math/svamp.jsonl"])
def test_published_solutions_of_mathematics_are_right(name: str) -> None:
    for scorer in (STRICT, SCORERS["math"]):
        wrong = [text for text, truth in solutions(name) if score_now(scorer, text, truth) != 1]
        unexplained = [text for text in wrong if not any(part in text for part in EXPLAINED.get(name, ()))]
        assert unexplained == [], scorer
        assert len(wrong) <= 1, scorer


def wrong_answers(gold: str, golds: list[str], chance: random.Random) -> Iterator[str]:
    """The constants, the negation, the half, other ground truths, the right side of an equation in several unknowns."""
    yield from CONSTANTS
    yield from (f"-({gold})", f"({gold})/2", f"\\frac{{{gold}}}{{2}}")
    yield from chance.sample(golds, OTHERS)
    left, equals, right = gold.rpartition("=")
    if (
        equals
        and len(set(re.findall(r"(?<![\\A-Za-z])[a-z](?![A-Za-z])", gold))) > 1
        and not re.fullmatch(r"\s*\w+\s*", left)
    ):
        yield right


def equal(answer: str, gold: str) -> bool:
    """Whether two ground truths are equal by math-verify, which the scorers ask only about what they do not read."""
    from math_verify import parse, verify

    return answer == gold or bool(verify(parse(f"\\boxed{{{gold}}}"), parse(f"\\boxed{{{answer}}}")))


def scored(scorer: Scorer, form: str, golds: list[str], stride: int) -> list[tuple[str, str]]:
    """The answers that score and are not equal to their ground truth."""
    chance = random.Random(16)
    pool = sorted(set(golds))
    found = []
    for gold in pool[chance.randrange(stride) :: stride]:
        for answer in wrong_answers(gold, pool, chance):
            if score_now(scorer, form.replace("@", answer), gold) and not equal(answer, gold):
                found.append((answer, gold))
    return found


@bounded
@pytest.mark.parametrize("scorer", [STRICT, SCORERS["math"]], ids=["strict", "lenient"])
def test_nothing_but_the_truth_scores_in_mathematics(scorer: Scorer) -> None:
    golds = [truth for name in ("math/math_test_odd.jsonl", "math/math500.jsonl") for _, truth in solutions(name)]
    assert scored(scorer, "So it is $\\boxed{@}$.", golds, times(12, full=1)) == []


@bounded
@pytest.mark.parametrize("scorer", [MARKED, SCORERS["gsm8k"], STRICT], ids=["marked", "any", "math"])
def test_nothing_but_the_truth_scores_in_word_problems(scorer: Scorer) -> None:
    names = ("gsm8k/train.jsonl", "gsm8k/test.jsonl", "math/svamp.jsonl")
    golds = [truth for name in names for _, truth in solutions(name)]
    assert scored(scorer, "So it is\n#### @", golds, times(12, full=1)) == []


@bounded
def test_nothing_but_the_truth_scores_in_questions() -> None:
    rows = lines("qa/nq_open_dev.jsonl")[:: times(12, full=1)]
    chance = random.Random(16)
    texts = [answer for row in rows for answer in row["answer"]]
    for row in rows:
        accepted = {" ".join(re.findall(r"\w+", answer.lower())) for answer in row["answer"]}
        assert score_now(SCORERS["qa_em"], f"<answer>{row['answer'][0]}</answer>", row["answer"]) == 1
        for answer in (*CONSTANTS, *(f"not {text}" for text in row["answer"]), *chance.sample(texts, OTHERS)):
            words = re.sub(r"\b(?:a|an|the)\b", " ", " ".join(re.findall(r"\w+", answer.lower())))
            if not any("".join(words.split()) in re.sub(r"\b(?:a|an|the)\b|\s", "", each) for each in accepted):
                assert score_now(SCORERS["qa_em"], f"<answer>{answer}</answer>", row["answer"]) == 0, (answer, row)


@bounded
def test_nothing_but_the_truth_scores_in_choices() -> None:
    for row in lines("math/mathqa.jsonl")[:: times(12, full=1)]:
        texts = [text.strip() for text in re.split(r"(?:^|,)\s*[a-e] \)", row["options"])[1:]]
        info = {"choices": texts} if len(set(texts)) == 5 else {}
        for letter in "ABCDE":
            right = letter == row["correct"].upper()
            assert score_now(SCORERS["choice"], f"\\boxed{{{letter}}}", row["correct"], info) == right, row
            assert score_now(SCORERS["choice"], f"The answer is ({letter}) because", row["correct"], info) == right, row


@bounded
@pytest.mark.parametrize("name", ["simple_python", "multiple", "parallel", "parallel_multiple"])
def test_nothing_but_the_truth_scores_in_function_calls(name: str) -> None:
    chance = random.Random(16)
    truths = [row["ground_truth"] for row in lines(f"tools/BFCL_v4_{name}_answers.json")]
    for truth in truths:
        calls = [call_of(call, chance.choice) for call in truth]
        assert matches(calls, truth)
        assert matches(calls[::-1], truth)
        assert not matches(calls[1:], truth)
        assert not matches([*calls, calls[0]], truth)
        for key in calls[0]["arguments"]:
            for value in ("no such value", 17_041, None, [], {}):
                changed = {**calls[0], "arguments": {**calls[0]["arguments"], key: value}}
                if value not in truth[0][changed["name"]][key]:
                    assert not matches([changed, *calls[1:]], truth), changed
        for other in chance.sample(truths, OTHERS):
            if other[0].keys() != truth[0].keys():
                assert not matches([call_of(call, chance.choice) for call in other], truth)


def matches(calls: list[dict[str, Any]], truth: Any) -> bool:
    return score_now(SCORERS["tool_match"].using(all_or_nothing=True), json.dumps(calls), truth) == 1
