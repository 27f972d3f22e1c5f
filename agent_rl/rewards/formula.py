"""A composed reward in words and numbers, and what it pays for plain behaviours: for people, the doctor and READMEs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from agent_rl.rewards.combine import normalized
from agent_rl.rewards.compose import Reward
from agent_rl.rewards.source_reward import SourceReward, Term
from agent_rl.settings import (
    TERMS,
    BudgetSettings,
    CorrectnessSettings,
    EfficiencySettings,
    FormatSettings,
    OverlongSettings,
)
from agent_rl.settings.terms import ComponentSettings, Schedule, TermSettings
from agent_rl.trajectory import Score, StopReason, ToolCall, ToolResult, Trajectory, Turn

__all__ = ["GIVING_UP", "HONEST_WORK", "Payment", "formulas", "payments"]

GIVING_UP, HONEST_WORK = "giving up at once", "wrong after honest work"
_PARTS = {
    "per_error": "failed call",
    "per_repeat": "repeated call",
    "per_redundant": "redundant result",
    "per_1000_tokens": "1,000 response tokens",
    "per_tool_second": "second of tools",
    "per_generation_second": "second of generation",
}


class Payment(NamedTuple):
    """What an episode earns."""

    known: float
    """By `correctness`, `efficiency`, `format` and `overlong`."""
    others: dict[str, float]
    """Weights of the components that count too, whose value only the episode itself has."""

    def __str__(self) -> str:
        return "".join([f"{self.known:.4g}", *(f" {_signed(weight)} × {name}" for name, weight in self.others.items())])


def formulas(reward: Reward) -> dict[str, str]:
    """The formula of each pattern of data sources; `*`: of those that have no reward of their own."""
    return {pattern: _formula(source, reward.max_response_tokens) for pattern, source in reward.sources.items()}


def payments(reward: Reward, pattern: str, turns: int, budget: BudgetSettings) -> dict[str, Payment]:
    """What the reward of a pattern of data sources pays for each behaviour, with schedules at their end.

    Each turn of the longest behaviour has an equal part of half of the limit on tokens, and takes a second, as does
    each call. A call is in every turn but the last, as far as `budget.max_tool_calls` allows.

    Args:
        reward: measures `efficiency`, `format` and `overlong`; no other component is asked.
        pattern: as in `formulas`.
        turns: the limit on turns.
        budget: the limits on calls and on malformed turns.
    """
    calls = turns - 1 if budget.max_tool_calls is None else min(turns - 1, budget.max_tool_calls)
    tokens = (reward.max_response_tokens or 0) // (2 * turns)
    work = [Turn("", calls=[ToolCall("tool", {"n": n})], results=[ToolResult("", "tool", str(n))]) for n in range(calls)]
    unread = [Turn("", malformed="malformed")] * min(turns, budget.max_malformed)
    behaviours = {
        "right at once": (1.0, [Turn("")]),
        "right with many calls": (1.0, [*work, Turn("")]),
        HONEST_WORK: (0.0, [*work, Turn("")]),
        GIVING_UP: (0.0, [Turn("")]),
        "malformed": (0.0, unread),
    }
    source, found = reward.sources[pattern], {}
    for name, (verdict, episode) in behaviours.items():
        done = [Turn("", tokens, t.calls, t.results, t.malformed, None, {}, 1.0, float(len(t.calls))) for t in episode]
        stop = StopReason.MALFORMED if episode is unread else StopReason.ANSWERED
        values = {term.name: _verdict(term, verdict) if term.name == "correctness" else 0.0 for term in source.terms}
        trajectory = Trajectory([], stop, done, response_tokens=tokens * len(done), score=Score(0.0, values))
        score = asyncio.run(reward.reweigh(trajectory, source))
        others = {term.name: score.weights.get(term.name, 0.0) for term in source.terms if _is_open_ended(term)}
        found[name] = Payment(score.total, {other: weight for other, weight in others.items() if weight})
    return found


def _verdict(term: Term, verdict: float) -> float:
    scale = term.settings.normalize
    return normalized(None if scale == "group" else scale, [verdict])[0]


def _is_open_ended(term: Term) -> bool:
    return term.name not in TERMS or term.settings.normalize == "group"


def _formula(source: SourceReward, limit: int | None) -> str:
    if source.rule != "sum":
        lines = [f"{_weight(term.settings.weight)} × {_term(term, source, limit)}" for term in source.terms]
        return "\n    ".join([f"reward = {source.rule}(values, weights, trajectory) of", *lines])
    counted = [term for term in source.terms if _counts(term.settings)]
    lines = [f"{_weight(term.settings.weight)} × {_term(term, source, limit)}" for term in counted]
    return "\n       + ".join(lines or ["0"]).join(["reward = ", ""])


def _counts(settings: TermSettings) -> bool:
    return bool(settings.weight) and not (isinstance(settings, OverlongSettings) and not settings.penalty)


def _term(term: Term, source: SourceReward, limit: int | None) -> str:
    settings = term.settings
    words = [_value(settings, source, limit), *_scale(settings)]
    return f"{term.name} ({', '.join(words)}){f', only where {settings.gate}' if settings.gate else ''}"


def _value(settings: TermSettings, source: SourceReward, limit: int | None) -> str:
    """The value before it is scaled."""
    if isinstance(settings, EfficiencySettings):
        parts = [f"-{_number(settings.penalty)} for each call beyond {settings.free_calls}"] if settings.penalty else []
        parts += [f"-{_number(cost)} for each {what}" for key, what in _PARTS.items() if (cost := getattr(settings, key))]
        return f"{', '.join(parts) or '0'}, at least {_number(settings.floor)}"
    if isinstance(settings, FormatSettings):
        return f"-1/{settings.turns} for each malformed turn, at least -1"
    if isinstance(settings, OverlongSettings):
        whole = limit or 1
        free = whole - (settings.buffer_tokens or max(1, whole // 5))
        return f"0 up to {free} response tokens, falling to -{_number(settings.penalty)} at {whole}"
    if isinstance(settings, ComponentSettings):
        return f"by {settings.kind}"
    assert isinstance(settings, CorrectnessSettings) and source.answers is not None
    if source.judged:
        return "by the custom reward function"
    if source.answers.api is not None:
        return "by the reward service"
    by_row = "by the row's data source, or its user"
    return by_row if settings.scorer == "auto" else f"by {settings.scorer}"


def _scale(settings: TermSettings) -> Iterator[str]:
    if isinstance(settings.normalize, list):
        yield "scaled so that {} is 0 and {} is 1".format(*map(_number, settings.normalize))
    elif settings.normalize is not None:
        yield "its z-score among the prompt's samples" if settings.normalize == "group" else f"its {settings.normalize}"
    if settings.clip is not None:
        yield "within {} and {}".format(*map(_number, settings.clip))


def _weight(weight: float | Schedule) -> str:
    if isinstance(weight, Schedule):
        steps = f"from step {weight.from_step} to {weight.to_step}, {weight.shape}"
        return f"({_number(weight.start)} to {_number(weight.end)} {steps})"
    return _number(weight)


def _number(number: float) -> str:
    return f"{number:.12g}"


def _signed(number: float) -> str:
    return f"{'-' if number < 0 else '+'} {_number(abs(number))}"
