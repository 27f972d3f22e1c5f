"""Describes a composed reward as a formula, and computes what the reward pays for typical behaviors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from agent_rl.rewards.compose import Reward
from agent_rl.rewards.source_reward import SourceReward, Term
from agent_rl.settings import TERMS, BudgetSettings, EfficiencySettings, FormatSettings, OverlongSettings
from agent_rl.settings.old_keys import written
from agent_rl.settings.reward import ComponentSettings, Schedule
from agent_rl.trajectory import StopReason, ToolCall, ToolResult, Trajectory, Turn

GIVING_UP, HONEST_WORK = "giving up at once", "wrong after honest work"
Payment = tuple[float, dict[str, float]]
"""The known part of a reward, and the weights of the components whose values cannot be computed in advance."""
_COSTS = {"per_error": "failed call", "per_repeat": "repeated call", "per_1000_tokens": "1,000 tokens"}


def formulas(reward: Reward) -> dict[str, str]:
    """Return the reward's formula for each data-source pattern; `*` is for data sources that match no pattern."""
    return {pattern: _formula(source, reward.max_response_tokens or 1) for pattern, source in reward.sources.items()}


def payments(reward: Reward, turns: int, budget: BudgetSettings) -> dict[str, dict[str, Payment]]:
    """Compute what each typical behavior earns, for each data-source pattern.

    A trajectory with the maximum number of turns is assumed to use half of the token limit; all turns are assumed to be
    equally long. A scheduled weight is shown with its final value.

    Args:
        reward: the reward; only its built-in terms, which depend only on the trajectory, are measured.
        turns: the turn limit; honest work makes one call in each turn except the last, up to the budget's limit.
        budget: the limits on calls and on malformed turns.
    """
    calls = turns - 1 if budget.max_tool_calls is None else min(turns - 1, budget.max_tool_calls)
    last = Turn("")
    work = [replace(last, calls=[ToolCall("t", {"n": n})], results=[ToolResult("", "t", str(n))]) for n in range(calls)]
    behaviours = {
        "right at once": (1.0, [last]),
        "right with many calls": (1.0, [*work, last]),
        HONEST_WORK: (0.0, [*work, last]),
        GIVING_UP: (0.0, [last]),
        "malformed": (0.0, [replace(last, malformed="unreadable")] * min(turns, budget.max_malformed)),
    }
    earned: dict[str, dict[str, Payment]] = {pattern: {} for pattern in reward.sources}
    for pattern, source in reward.sources.items():
        apart = {term.name for term in source.terms if term.name not in TERMS or term.settings.normalize == "group"}
        for name, (verdict, episode) in behaviours.items():
            tokens = (reward.max_response_tokens or 0) * len(episode) // (2 * turns)
            trajectory = Trajectory([], StopReason.ANSWERED, episode, response_tokens=tokens)
            score = asyncio.run(reward.by_rules(trajectory, verdict, pattern))
            earned[pattern][name] = score.total, {key: w for key, w in score.weights.items() if w and key in apart}
    return earned


def _formula(source: SourceReward, limit: int) -> str:
    rule = source.settings.combine
    counted = [term for term in source.terms if term.settings.weight or rule != "sum"]
    lines = [_term(term, source, limit) for term in counted]
    if rule == "sum":
        return "reward = " + "\n       + ".join(lines or ["0"])
    return "\n       ".join([f"reward = {rule} of these values, their weights, and the trajectory:", *lines])


def _term(term: Term, source: SourceReward, limit: int) -> str:
    settings, weight, words = term.settings, term.settings.weight, [_value(term, source, limit)]
    if isinstance(settings.normalize, list):
        words.append("scaled so that {:g} is 0 and {:g} is 1".format(*settings.normalize))
    elif settings.normalize is not None:
        words.append({"group": "its z-score in the group"}.get(settings.normalize, f"its {settings.normalize}"))
    words += [] if settings.clip is None else ["within {:g} and {:g}".format(*settings.clip)]
    factor = f"{weight:.12g}" if not isinstance(weight, Schedule) else (
        f"({weight.start:.12g} to {weight.end:.12g} from step {weight.from_step} to {weight.to_step})"
    )  # fmt: skip
    return f"{factor} x {term.name} ({', '.join(words)})" + (f", only where {settings.gate}" if settings.gate else "")


def _value(term: Term, source: SourceReward, limit: int) -> str:
    """Describe a component's value before it is scaled."""
    match term.settings:
        case EfficiencySettings() as efficiency:
            costs = {f"call beyond {efficiency.free_calls}": efficiency.penalty}
            costs |= {event: getattr(efficiency, key) for key, event in _COSTS.items()}
            parts = [f"-{cost:.12g} for each {event}" for event, cost in costs.items() if cost]
            return ", ".join([*parts, f"at least {efficiency.floor:.12g}"])
        case FormatSettings(turns=turns):
            return f"-1/{turns} for each malformed turn, at least -1"
        case OverlongSettings(penalty=penalty, buffer_tokens=buffer):
            free = limit - (buffer or max(1, limit // 5))
            return f"0 up to {free} tokens, falling to -{penalty:.12g} at {limit}"
        case ComponentSettings(kind=kind):
            return f"by {kind}"
    if source.judged:
        return "by the custom reward function"
    if isinstance(scorer := source.settings.correctness.scorer, Mapping):
        options = (f"{key}={written(value)}" for key, value in scorer.items() if key != "name")
        return ", ".join([f"by {scorer.get('name')}", *options])
    if scorer != "auto":
        return f"by {scorer}"
    return "by the reward service" if source.answers and source.answers.api else "by the row's data source, or its user"
