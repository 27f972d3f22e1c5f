r"""Scores short answers by exact match, F1 or substring, after normalizing both sides as SQuAD and Search-R1 do.

Normalized text is lower-case, without punctuation, articles or repeated whitespace. The answer is the last
`\boxed{}` after the thoughts (within the last `<answer>...</answer>` if the text contains this tag). Without a box,
it is the content of the tag; without either, the whole text if it is short. The ground truth is a string, a list of
strings, or `{"target": string or list}`; the best match counts. Answers longer than 2,000 characters match no target.
"""

from __future__ import annotations

import operator
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from agent_rl.rewards.scorers.extraction import after_thoughts, marked_part
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable

_DATA_SETS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
SOURCES = ("agent_rl/search_qa", *_DATA_SETS, *(f"searchR1_{name}" for name in _DATA_SETS), "hotpotqa/*")
MAX_ANSWER_CHARS = 2_000
MAX_TEXT_CHARS = 1_000_000  # only this many characters at the end of a response are searched for the answer
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TARGET_KEYS = ("target", "targets", "answer", "answers")


_EM_TEXT = "1.0 if the answer is one of the targets, else 0.0."
_F1_TEXT = "The harmonic mean of precision and recall over words, from 0 to 1, for the most similar target."
_SUBSTRING_TEXT = "1.0 if the answer contains the words of a target in sequence, else 0.0."


def _f1(answer: str, target: str) -> float:
    if answer == target:
        return 1.0
    if {answer, target} & {"yes", "no", "noanswer"}:
        return 0.0
    words, target_words = Counter(answer.split()), Counter(target.split())
    common = (words & target_words).total()
    return 2 * common / (words.total() + target_words.total())


def _contains(answer: str, target: str) -> float:
    return float(f" {target} " in f" {answer} ")


@built_in("qa_em", *SOURCES, inline=True, text=_EM_TEXT)
def score_qa(
    solution: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    *,
    likeness: Callable[[str, str], float] = operator.eq,
) -> float:
    """Return the similarity between the answer and the most similar target, from 0 to 1.

    `qa_f1` gives partial credit for some of the right words; "yes", "no" and "noanswer" match only themselves, as in
    HotpotQA. `qa_substring` also accepts an answer that lists many things, if one of them is right.

    Raises:
        UnscoredError: the ground truth has no target.
    """
    targets = [text for target in read_targets(ground_truth) if (text := _normal(target))]
    if not targets:
        raise unusable(ground_truth, "text with words in it")
    answer = _normal(extract_answer(solution))
    return max(float(likeness(answer, target)) for target in targets)


built_in("qa_f1", inline=True, text=_F1_TEXT)(partial(score_qa, likeness=_f1))
built_in("qa_substring", inline=True, text=_SUBSTRING_TEXT)(partial(score_qa, likeness=_contains))


def extract_answer(solution: str) -> str:
    """Extract the answer from a response; "" if the answer is missing or too long."""
    text = after_thoughts(solution[-MAX_TEXT_CHARS:])
    answer = marked_part(text)
    if answer is None and "<answer>" not in text:
        answer = text.strip()
    return answer if answer is not None and len(answer) <= MAX_ANSWER_CHARS else ""


def normalize_answer(text: str) -> str:
    """Convert text to lower case, and remove punctuation, articles and repeated whitespace."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def read_targets(ground_truth: Any) -> list[str]:
    """Extract the accepted answers from a ground truth, without normalizing them.

    Raises:
        UnscoredError: the ground truth contains no accepted answer, or has an unsupported form.
    """
    value = ground_truth
    if isinstance(value, Mapping):
        value = next((value[key] for key in _TARGET_KEYS if key in value), None)
    value = as_data(value)
    values = value if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str) else [value]
    targets = [str(item) for item in values if isinstance(item, str | int | float)]
    if not targets or len(targets) != len(values):
        raise unusable(ground_truth, "a string, a list of strings or {'target': ...}")
    return targets


def _normal(text: str) -> str:
    return normalize_answer(text) or " ".join(text.lower().split())  # the name "The The" must not become empty
