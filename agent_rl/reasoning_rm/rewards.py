"""Rewards for training a model to judge, which measure how close the model's verdict is to the ground truth.

    calculate_reward(3, 4)         # 0.75: 1 - |error| / range
    pointwise_reward(3, 4)         # exp(-2 * 1 / 4)

`compute_score` has the signature that verl expects of `reward.custom_reward_function`. An unreadable or out-of-range
verdict is the policy's mistake, and gets the reward 0. A row without a ground truth is the user's mistake and stops the
run with an error that names the row. (The code in other libraries' guides returns 0 instead, which provides no training
signal.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.reasoning_rm.sample import SAMPLE
from agent_rl.rewards.judge.kinds import PointwiseTemplate, kind_of, scale_of
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

LOGGED = ("accuracy", "absolute_error", "parsed", "strict")
"""The keys that `compute_score` returns in addition to `score` for every verdict."""


def calculate_reward(predicted_score: float, true_score: float, *, low: float = 0.0, high: float = 4.0) -> float:
    """Return `max(0, 1 - |error| / (high - low))`.

    Raises:
        ConfigError: the true score is missing or not a number.
    """
    return max(0.0, 1.0 - _error(predicted_score, true_score) / (high - low))


def pointwise_reward(
    predicted_score: float, true_score: float, *, low: float = 0.0, high: float = 4.0, k: float = 2.0
) -> float:
    """Return `exp(-k * |error| / (high - low))`.

    Raises:
        ConfigError: the true score is missing or not a number.
    """
    return math.exp(-k * _error(predicted_score, true_score) / (high - low))


def pairwise_reward(predicted: str, true: str, *, swapped: str | None = None, tie: float = 0.0) -> float:
    """Return 1 for the right winner, `tie` for a wrong tie, and 0 for the wrong winner.

    Args:
        predicted: the verdict: A, B or tie.
        true: the ground truth: A, B or tie.
        swapped: the verdict on the same pair in the other order; if passed, both verdicts must be right.
        tie: the reward for predicting a tie although one answer is better.

    Raises:
        ConfigError: the ground truth is missing or invalid.
    """
    if true not in POINTS:
        raise ConfigError("ground_truth", f"expected A, B or tie, got {true!r}", "Correct the row")
    if swapped is not None and SWAPPED.get(swapped) != predicted:
        return 0.0
    if predicted == true:
        return 1.0
    return tie if predicted == "tie" else 0.0


def format_reward(text: str, template: type[BasePromptTemplate], judged: str = "") -> float:
    """Return 1 for a reply in exactly the template's form, 0.5 for any other readable verdict, and 0 otherwise."""
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
    low: float | None = None,
    high: float | None = None,
    format_weight: float = 0.0,
    **_: Any,
) -> dict[str, float]:
    """Compute the reward of one reply. verl passes the positional arguments.

    Args:
        data_source: the row's data source.
        solution_str: the reply, including its thoughts.
        ground_truth: a score, `A`, `B` or `tie`, or a mapping of scores by criterion.
        extra_info: the row's `extra_info`; a verdict quoted from the answers in this mapping is ignored.
        template: the template that defines the form of the verdict.
        reward: a function of the verdict and the truth, and for scores also of `low` and `high`; None means
            `pointwise_reward`, `pairwise_reward`, or the mean of `pointwise_reward` over the criteria.
        low: the worst possible score; None means the lower bound in the template, or 0 if a bound is missing.
        high: the best possible score; None means the upper bound in the template, or 4 if a bound is missing.
        format_weight: share of `format_reward` in the score; the rest is the reward for the verdict.

    Returns:
        `score` and the keys of `LOGGED`. An unreadable verdict gets the maximum absolute error.

    Raises:
        ConfigError: the row has no ground truth that matches the template.
    """
    info, kind, scale = extra_info or {}, kind_of(template), scale_of(template) or (0.0, 4.0)
    low, high = scale[0] if low is None else low, scale[1] if high is None else high
    judged = "\n".join(_answers(info))
    try:
        data = as_data(ground_truth)
        form = _form(kind, data, low, high)
        truth = getattr(checked_verdict(form.model, {form.name: data}), form.name)
    except (TypeError, ValueError) as error:
        place = f"{data_source}, {info.get('split', '')} row {info.get('index')}, ground_truth"
        raise ConfigError(place, str(error), "Correct the ground truth, or remove the row") from error
    logged = {**dict.fromkeys(LOGGED, 0.0), "absolute_error": 1.0 if kind == "pairwise" else high - low}
    try:
        reply: Any = template.read(solution_str, judged)
        if kind == "rubric" and reply.scores.keys() != truth.keys():
            raise VerdictError(f"expected scores for {sorted(truth)}, got scores for {sorted(reply.scores)}")
        verdict = getattr(form.of(reply), form.name)
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
        raise ConfigError("ground_truth", f"expected a number, got {value!r:.80}", "Correct the true score")
    return number


def _form(kind: str, truth: Any, low: float, high: float) -> VerdictForm:
    """Return the form that both the verdict and the ground truth have."""
    if kind == "pairwise":
        return pair_form()
    return score_form(low, high) if kind == "pointwise" else rubric_form(tuple(truth), low, high)


def _compared(
    kind: str, reward: Callable[..., float] | None, verdict: Any, truth: Any, low: float, high: float
) -> tuple[float, float]:
    """Return a verdict's reward, and its distance from the ground truth."""
    if kind == "pairwise":
        return float((reward or pairwise_reward)(verdict, truth)), float(verdict != truth)
    pairs = [(verdict, truth)] if kind == "pointwise" else [(verdict[name], truth[name]) for name in truth]
    score_reward = reward or pointwise_reward
    value = fmean(float(score_reward(predicted, true, low=low, high=high)) for predicted, true in pairs)
    return value, fmean(abs(predicted - true) for predicted, true in pairs)


def _answers(info: Mapping[str, Any]) -> list[str]:
    own = info.get(SAMPLE) or {}
    answers = [*(own.get("answers") or ()), *(info.get("answers") or ()), info.get("chosen"), info.get("rejected")]
    return [str(answer) for answer in answers if answer]
