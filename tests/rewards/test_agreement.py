"""Where ours and other scorers disagree about the labelled cases: each disagreement is listed, with its reason.

The list is tests/rewards/corpus/disagreements.json: scorer, reason, and the cases as `answer ||| truth`. A disagreement
that is not in it fails, and so does one that is no longer there. Ours agree with every label (tests/rewards/scorers):
whoever disagrees with ours disagrees with the label.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rewards.others import MATH, PROSE
from tests.support.profiles import FULL, bounded, times

pytestmark = pytest.mark.trainer

CORPUS = Path(__file__).parent / "corpus"
REASONS = {
    "compares strings": "two spellings of one value are different, but for a few that are rewritten",
    "another notation": "it does not read this spelling of the value",
    "no bare numbers of percent": "50% is neither 50 nor, for some, 0.5",
    "rounded truth": "a truth with two decimals does not stand for the exact value that rounds to it",
    "units are dropped": "5 cm and 5 m are the same, for the unit is not looked at",
    "units are not converted": "100 cm is not 1 m",
    "words around the value": "what stands beside the value is not taken off",
    "not evaluated": "sympy is not asked to, or does not, show that the two are equal",
    "complex numbers": "i is a variable, or complex values are not compared",
    "relations and sets": "an inequality is not the interval that it describes, an equation not a multiple of itself",
    "order and brackets": "lists, sets, tuples and intervals are not told apart, or not compared by their elements",
    "names are kept": "what only names the value is compared with it",
    "names are dropped": "what stands before an equals sign is not looked at",
    "case of letters": "p and P are the same",
    "floating point": "numbers are compared as floats, some with a tolerance of 1e-4",
    "misread": "it reads another value: a root's order, a mixed number's sign, a power's base or a bracket is lost",
    "digits run together": "spaces or commas between digits are dropped wherever they stand",
    "exact text of the number": "the digits are compared as text",
    "a tag is demanded": "without <answer> there is no answer",
    "normalises to nothing": "articles alone are equal to each other",
    "no limit on length": "an answer of any length is accepted",
}
TOO_SLOW = ("9^{9^{9", "10^{9}} k")
"""In cases that take the others seconds; ours are tested on them in test_hostile.py."""


def listed(scorer: str) -> dict[str, str]:
    """The reasons by case."""
    reasons = json.loads((CORPUS / "disagreements.json").read_text())[scorer]
    return {case: reason for reason, found in reasons.items() for case in found}


def cases(name: str) -> list[dict[str, Any]]:
    """The labelled cases; by default every fourth."""
    return [json.loads(line) for line in (CORPUS / name).read_text().splitlines()[:: times(4, full=1)]]


def judged(scorer: str) -> dict[str, bool]:
    """Whether the scorer contradicts the label, by case."""
    if scorer in MATH:
        return {
            f"{case['answer']} ||| {case['truth']}": MATH[scorer](case["answer"], case["truth"]) != case["equal"]
            for case in cases("math.jsonl")
            if not any(part in case["answer"] for part in TOO_SLOW)
        }
    return {
        f"{case['solution'][:100]} ||| {str(case['truth'])[:100]}": (
            PROSE[scorer](case["solution"], case["truth"]) != (case["score"] == 1)
        )
        for case in cases("extraction.jsonl")
        if case["scorer"] == scorer
    }


@bounded
@pytest.mark.parametrize("scorer", [*MATH, *PROSE])
def test_every_disagreement_has_its_reason(scorer: str) -> None:
    known, found = listed(scorer), judged(scorer)
    wrong = {case for case, is_wrong in found.items() if is_wrong}
    print(f"{scorer}: agrees with {len(found) - len(wrong)} of {len(found)} labels")
    assert sorted(wrong - known.keys()) == [], "not listed"
    assert sorted(known.keys() & found.keys() - wrong) == [], "listed, and no longer so"
    assert not FULL or known.keys() <= found.keys()
    assert set(known.values()) <= REASONS.keys()
