"""What a run's metrics say that its user should know, in words, with the step at which it began."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

__all__ = ["components", "run_warnings", "series"]

Metrics = Mapping[str, Any]
Point = tuple[int, float]

TERMS = ("efficiency", "format", "overlong")
"""Built-in components, which are 0 where nothing is wrong."""
FEWEST = 10
"""Steps below which a trend is no trend."""
FALL = 0.02
"""Of correctness, from the first third of a run to the last."""
LARGEST_KL = 10.0
COLLAPSED = 0.1
"""Of the entropy at the start."""
CUT_OFF = 0.1
"""Rise of the share of responses that reach the limit on tokens."""


def run_warnings(steps: Sequence[Metrics], configuration: Mapping[str, Any]) -> list[str]:
    """Sentences about a run; none when nothing stands out.

    Args:
        steps: the metrics of each step of training, with its number as `step`.
        configuration: of the run, whole.
    """
    return [
        *_constant(steps, configuration),
        *_apart(steps),
        *_kl(steps),
        *_entropy(steps),
        *_cut_off(steps),
        *_unused(steps),
    ]


def components(steps: Sequence[Metrics], configuration: Mapping[str, Any]) -> list[str]:
    """Names of the components that say anything, in the order of the configuration."""
    found = {name: series(steps, f"agent/{name}") for name in ("correctness", *TERMS, *_sections(configuration))}
    return [
        name for name, points in found.items() if any(value for _, value in points) or (points and name not in TERMS)
    ]


def series(steps: Sequence[Metrics], key: str) -> list[Point]:
    """The steps in which a metric has a finite value, with it."""
    found = [(int(each["step"]), each.get(key)) for each in steps]
    return [(step, float(value)) for step, value in found if isinstance(value, int | float) and math.isfinite(value)]


def _sections(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """The sections of the user's components."""
    return ((configuration.get("agent_rl") or {}).get("reward") or {}).get("components") or {}


def _constant(steps: Sequence[Metrics], configuration: Mapping[str, Any]) -> Iterator[str]:
    """A component that should tell trajectories apart does not."""
    sections = {**((configuration.get("agent_rl") or {}).get("reward") or {}), **_sections(configuration)}
    for name in components(steps, configuration):
        section, values = sections.get(name) or {}, series(steps, f"agent/{name}")
        has_weight = section.get("penalty", section.get("weight", 1)) != 0
        if has_weight and len(values) >= FEWEST and len({value for _, value in values}) == 1:
            yield f"The component {name} is {values[0][1]:g} in all {len(values)} steps: it changes no advantage."


def _apart(steps: Sequence[Metrics]) -> Iterator[str]:
    """The reward rises while correctness falls: something else is rewarded."""
    reward, correctness = series(steps, "critic/score/mean"), series(steps, "agent/correctness")
    if len(reward) < FEWEST or len(correctness) < FEWEST:
        return
    (reward_first, reward_last), (first, last) = _thirds(reward), _thirds(correctness)
    if reward_last > reward_first and last < first - FALL:
        peak = max(correctness, key=lambda point: point[1])[0]
        yield (
            f"Since step {peak} correctness falls ({first:.2f} in the first third of the run, {last:.2f} in the last) "
            f"while the reward rises ({reward_first:.2f}, {reward_last:.2f}): another component is what is learned."
        )


def _kl(steps: Sequence[Metrics]) -> Iterator[str]:
    for key in ("actor/kl_loss", "actor/reward_kl_penalty", "actor/ppo_kl"):
        if above := next((point for point in series(steps, key) if point[1] > LARGEST_KL), None):
            since = f"since step {above[0]} ({above[1]:.3g})"
            yield f"{key} is above {LARGEST_KL:g} {since}: the policy has left its reference."


def _entropy(steps: Sequence[Metrics]) -> Iterator[str]:
    values = series(steps, "actor/entropy")
    if len(values) < 4 or values[-1][0] - values[0][0] < FEWEST - 1 or values[0][1] <= 0:
        return  # it is not in every step: `agent_rl.run.log_probs_every`
    start = fmean(value for _, value in values[:3])
    if values[-1][1] < COLLAPSED * start:
        step = next(step for step, value in values if value < COLLAPSED * start)
        since = f"({start:.3g}) since step {step}"
        yield f"The entropy is below a tenth of its start {since}: samples of a prompt become alike."


def _cut_off(steps: Sequence[Metrics]) -> Iterator[str]:
    values = series(steps, "response_length/clip_ratio")
    if len(values) < FEWEST:
        return
    first, last = _thirds(values)
    if last > first + CUT_OFF:
        step = next(step for step, value in values if value > first + CUT_OFF)
        yield (
            f"More responses reach data.max_response_length since step {step}: {first:.0%} in the first third of the "
            f"run, {last:.0%} in the last."
        )


def _unused(steps: Sequence[Metrics]) -> Iterator[str]:
    values = series(steps, "agent/tool_calls")
    if values and not any(value for _, value in values):
        yield "No tool was ever called: look at a trajectory's prompt, or whether the run has a tool file."
    elif len(values) >= FEWEST and values[0][1] > 0.2 and _thirds(values)[1] < 0.05:
        step = next(step for step, value in values if value < 0.05)
        yield f"Tools are not called any more since step {step} ({values[0][1]:.2f} calls a trajectory at the start)."


def _thirds(values: Sequence[Point]) -> tuple[float, float]:
    """Means of the first and the last third."""
    third = max(1, len(values) // 3)
    return fmean(value for _, value in values[:third]), fmean(value for _, value in values[-third:])
