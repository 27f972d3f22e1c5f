r"""Questions with short answers: exact match, F1 and substring, after the normalisation of SQuAD and Search-R1.

Normalized texts are in lower case, without punctuation, articles and repeated white space. The answer is the content of
the last `<answer>...</answer>` after the thoughts; without such a tag, of the last `\boxed{}`; else the whole text, if
it is short. The
ground truth is a text, a list of texts, or `{"target": text or list}`; the best of them counts. Answers of more than
2,000 characters match nothing.
"""

from __future__ import annotations

import operator
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_rl.rewards.scorers.extraction import after_thoughts, marked_part
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable

__all__ = ["extract_answer", "normalize_answer", "read_targets", "score_qa"]

_DATA_SETS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
SOURCES = ("agent_rl/search_qa", *_DATA_SETS, *(f"searchR1_{name}" for name in _DATA_SETS), "hotpotqa/*")
MAX_ANSWER_CHARS = 2_000
MAX_TEXT_CHARS = 1_000_000  # at the end of a response, where the answer is looked for
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TARGET_KEYS = ("target", "targets", "answer", "answers")


_EM_TEXT = "1.0 when the answer is one of the targets, else 0.0."
_F1_TEXT = "The harmonic mean of precision and recall over words, 0 to 1, against the best target."
_SUBSTRING_TEXT = "1.0 if the answer contains the words of a target in sequence, else 0.0."


def _f1(answer: str, target: str) -> float:
    if answer == target:
        return 1.0
    if {answer, target} & {"yes", "no", "noanswer"}:
        return 0.0
    words, wanted = Counter(answer.split()), Counter(target.split())
    common = (words & wanted).total()
    return 2 * common / (words.total() + wanted.total())


def _contains(answer: str, target: str) -> float:
    return float(f" {target} " in f" {answer} ")


@built_in("qa_substring", inline=True, likeness=_contains, text=_SUBSTRING_TEXT)
@built_in("qa_f1", inline=True, likeness=_f1, text=_F1_TEXT)
@built_in("qa_em", *SOURCES, inline=True, text=_EM_TEXT)
def score_qa(
    solution: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    *,
    likeness: Callable[[str, str], float] = operator.eq,
) -> float:
    """How much the answer is like the best target, 0 to 1.

    `qa_f1` lets through a share of an answer that has some of the right words; "yes", "no" and "noanswer" match only
    themselves, as in HotpotQA. `qa_substring` lets through an answer that names many things, one of which is right.

    Raises:
        UnscoredError: there is no target.
    """
    targets = [text for target in read_targets(ground_truth) if (text := _normal(target))]
    if not targets:
        raise unusable(ground_truth, "a text with words in it")
    answer = _normal(extract_answer(solution))
    return max(float(likeness(answer, target)) for target in targets)


def extract_answer(solution: str) -> str:
    """The answer in a response; "" if there is none."""
    text = after_thoughts(solution[-MAX_TEXT_CHARS:])
    answer = marked_part(text)
    if answer is None and "<answer>" not in text:
        answer = text.strip()
    return answer if answer is not None and len(answer) <= MAX_ANSWER_CHARS else ""


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation, articles and repeated white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def read_targets(ground_truth: Any) -> list[str]:
    """The accepted answers, not normalized.

    Raises:
        UnscoredError: there are none.
    """
    value = ground_truth
    if isinstance(value, Mapping):
        value = next((value[key] for key in _TARGET_KEYS if key in value), None)
    value = as_data(value)
    values = value if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str) else [value]
    targets = [str(item) for item in values if isinstance(item, str | int | float)]
    if not targets or len(targets) != len(values):
        raise unusable(ground_truth, "a text, a list of texts or {'target': ...}")
    return targets


def _normal(text: str) -> str:
    return normalize_answer(text) or " ".join(text.lower().split())  # "The The" is a name
