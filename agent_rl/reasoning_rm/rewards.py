"""Rewards of a model that is trained to judge: how near its verdict is to the truth.

    calculate_reward(3, 4)         # 0.75: 1 - |error| / range
    pointwise_reward(3, 4)         # exp(-2 * 1 / 4)

`compute_score` has verl's signature, for `reward.custom_reward_function`. A verdict that cannot be read or is out of
range is the policy's mistake: the reward is 0. A row without a truth is the user's: it stops the run with the row (the
guides give 0 there, which would train on nothing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.reasoning_rm.sample import SAMPLE
from agent_rl.rewards.judge.kinds import PointwiseTemplate, kind_of
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate
from agent_rl.rewards.judge.verdict import (
    POINTS,
    SWAPPED,
    VerdictError,
    VerdictForm,
    checked_verdict,
    pair_form,
    rubric_form,
    score_form,
)
from agent_rl.rewards.scorers.scorer import as_data

__all__ = [
    "calculate_reward",
    "compute_score",
    "format_reward",
    "pairwise_reward",
    "pointwise_reward",
]

LOGGED = ("accuracy", "absolute_error", "parsed", "strict")
"""The keys that `compute_score` returns besides `score`, the same for every verdict."""


def calculate_reward(predicted_score: float, true_score: float, *, low: float = 0.0, high: float = 4.0) -> float:
    """`max(0, 1 - |e| / (high - low))`.

    Raises:
        ConfigError: the true score is missing.
    """
    return max(0.0, 1.0 - _error(predicted_score, true_score) / (high - low))


def pointwise_reward(
    predicted_score: float, true_score: float, *, low: float = 0.0, high: float = 4.0, k: float = 2.0
) -> float:
    """`exp(-k |e| / (high - low))`.

    Raises:
        ConfigError: the true score is missing.
    """
    return math.exp(-k * _error(predicted_score, true_score) / (high - low))


def pairwise_reward(predicted: str, true: str, *, swapped: str | None = None, tie: float = 0.0) -> float:
    """1 for the right winner.

    Args:
        predicted: A, B or tie.
        true: the same.
        swapped: the verdict on the pair in the other order; then both have to be right.
        tie: the reward for a tie where one answer is better.

    Raises:
        ConfigError: the truth is missing.
    """
    if true not in POINTS:
        raise ConfigError("ground_truth", f"expected A, B or tie, got {true!r}", "Correct the row")
    if swapped is not None and SWAPPED.get(swapped) != predicted:
        return 0.0
    if predicted == true:
        return 1.0
    return tie if predicted == "tie" else 0.0


def format_reward(text: str, template: type[BasePromptTemplate], judged: str = "") -> float:
    """1 for a reply in exactly the template's form, 0.5 for one that can be read all the same, else 0."""
    try:
        template.read(text, judged)
    except VerdictError:
        return 0.0
    return 1.0 if template.is_strict(text) else 0.5


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    template: type[BasePromptTemplate] = PointwiseTemplate,
    reward: Callable[..., float] | None = None,
    low: float = 0.0,
    high: float = 4.0,
    format_weight: float = 0.0,
    **_: Any,
) -> dict[str, float]:
    """The reward of one reply, with verl's arguments first.

    Args:
        data_source: of the row.
        solution_str: the reply, with its thoughts.
        ground_truth: a score, `A`, `B` or `tie`, or a mapping of scores by criterion.
        extra_info: of the row; its answers are what a verdict may be quoted from.
        template: of the verdict.
        reward: of verdict and truth, with `low` and `high` where they are scores; None: `pointwise_reward`,
            `pairwise_reward`, or the mean of `pointwise_reward` over the criteria.
        low: the worst score.
        high: the best one.
        format_weight: share of `format_reward` in the score.

    Returns:
        `score`, and the numbers of `LOGGED`; the error of a verdict that cannot be read is the whole range.

    Raises:
        ConfigError: the row has no truth that fits the template.
    """
    info, kind = extra_info or {}, kind_of(template)
    judged = "\n".join(_answers(info))
    try:
        given = as_data(ground_truth)
        form = _form(kind, given, low, high)
        truth = getattr(checked_verdict(form.model, {form.name: given}), form.name)
    except (TypeError, ValueError) as error:
        place = f"{data_source}, {info.get('split', '')} row {info.get('index')}, ground_truth"
        raise ConfigError(place, str(error), "Give the truth, or leave the row out") from error
    logged = {**dict.fromkeys(LOGGED, 0.0), "absolute_error": 1.0 if kind == "pairwise" else high - low}
    try:
        said: Any = template.read(solution_str, judged)
        if kind == "rubric" and said.scores.keys() != truth.keys():
            raise VerdictError(f"the verdict is about {sorted(said.scores)}, not {sorted(truth)}")
        verdict = getattr(form.of(said), form.name)
    except VerdictError:
        return {"score": 0.0, **logged}
    value, distance = _compared(kind, reward, verdict, truth, low, high)
    strict = float(template.is_strict(solution_str))
    score = (1.0 - format_weight) * value + format_weight * (1.0 + strict) / 2
    numbers = {"score": score, "parsed": 1.0, "strict": strict, "absolute_error": distance}
    return {**numbers, "accuracy": float(distance == 0.0)}


def _error(predicted: float, true: float) -> float:
    return abs(float(predicted) - _truth(true))


def _truth(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise ConfigError("ground_truth", f"expected a number, got {value!r:.80}", "Give the true score")
    return number


def _form(kind: str, truth: Any, low: float, high: float) -> VerdictForm:
    """The form that verdict and truth of a kind have."""
    if kind == "pairwise":
        return pair_form()
    return score_form(low, high) if kind == "pointwise" else rubric_form(tuple(truth), low, high)


def _compared(
    kind: str, reward: Callable[..., float] | None, verdict: Any, truth: Any, low: float, high: float
) -> tuple[float, float]:
    """The reward of a verdict, and its distance from the truth."""
    if kind == "pairwise":
        return float((reward or pairwise_reward)(verdict, truth)), float(verdict != truth)
    pairs = [(verdict, truth)] if kind == "pointwise" else [(verdict[name], truth[name]) for name in truth]
    of_one = reward or pointwise_reward
    value = fmean(float(of_one(predicted, true, low=low, high=high)) for predicted, true in pairs)
    return value, fmean(abs(predicted - true) for predicted, true in pairs)


def _answers(info: Mapping[str, Any]) -> list[str]:
    own = info.get(SAMPLE) or {}
    answers = [*(own.get("answers") or ()), *(info.get("answers") or ()), info.get("chosen"), info.get("rejected")]
    return [str(answer) for answer in answers if answer]
