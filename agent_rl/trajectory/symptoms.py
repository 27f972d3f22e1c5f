"""Finds the symptoms of docs/symptoms.md in a run's metrics and in the way it ended, and suggests remedies.

The panel, the report, the viewer and `agent-rl why` show the same warnings as soon as the metrics show a symptom.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from agent_rl.trajectory.run_files import RunState, leaves

Metrics = Mapping[str, Any]
Point = tuple[int, float]

TERMS = ("efficiency", "format", "overlong")
"""Built-in components, which are 0 unless they penalize a trajectory."""
FEWEST = 10
"""Minimum number of steps for a warning about a trend."""
FEW = 3
"""Minimum number of steps for which a state must last before a warning, because a shorter one may be chance."""
FALL = 0.02
"""A warning appears if correctness drops by more than this amount from the first to the last third of a run."""
LARGEST_KL = 10.0
COLLAPSED = 0.1
"""A policy has collapsed if its entropy falls below this share of the initial entropy."""
CUT_OFF = 0.1
"""A warning appears if the share of responses at the token limit increases by more than this amount."""
HALF = 0.5
DRIFT = 0.01
"""A warning appears if the token probabilities in engine and trainer differ by more than this amount on average."""
MEMORY = re.compile(r"out of memory|OutOfMemory|\boom\b|is memory short", re.IGNORECASE)


class SymptomWarning(NamedTuple):
    """One warning.

    Attributes:
        text: what was observed, with the step.
        remedy: the change that removes the symptom.
        symptom: the title of the symptom's section in docs/symptoms.md.
    """

    text: str
    remedy: str
    symptom: str

    def __str__(self) -> str:
        return self.text


Found = Iterator[tuple[str, str]]
"""Pairs of text and remedy."""
Run = Mapping[str, Any]
"""The whole composed configuration of a run."""


@dataclass(frozen=True)
class Symptom:
    """A section of docs/symptoms.md.

    Attributes:
        title: the title of the section.
        shown: the symptom as a user would describe it.
        when: the condition for a warning.
        find: function that finds the symptom in the metrics of the steps; the default is for a symptom that
            `end_warnings` reports.
    """

    title: str
    shown: str
    when: str
    find: Callable[[Sequence[Metrics], Run], Found] = lambda steps, configuration: iter(())


def run_warnings(steps: Sequence[Metrics], configuration: Run) -> list[SymptomWarning]:
    """Return the warnings about a run.

    Args:
        steps: the metrics of each training step, including its number `step`.
        configuration: the whole configuration of the run.
    """
    return [
        SymptomWarning(text, remedy, symptom.title)
        for symptom in SYMPTOMS
        for text, remedy in symptom.find(steps, configuration)
    ]


def end_warnings(state: RunState) -> list[SymptomWarning]:
    """Return the warnings about how a run ended."""
    if state.status not in ("failed", "killed"):
        return []
    cause = " ".join(state.error.split("\n| ")[0].split())[:400] or "its process ended without recording an error"
    if MEMORY.search(state.error):
        text = f"The run ran out of memory: {cause}"
        remedy = (
            "Lower actor_rollout_ref.rollout.gpu_memory_utilization or the tokens per GPU of an update; "
            "agent-rl doctor estimates both"
        )
        return [SymptomWarning(text, remedy, "Out of memory")]
    if state.step is None:
        remedy = "Read train.log, and run agent-rl doctor RECIPE, which finds most causes before a run"
        return [
            SymptomWarning(f"The run {state.status} before the first step: {cause}", remedy, "Before the first step")
        ]
    return []


def components(steps: Sequence[Metrics], configuration: Run) -> list[str]:
    """Return the logged names of the components in configured order, except built-in components that stayed 0."""
    names = ("correctness", *TERMS, *_sections(configuration))
    logged = [reward if series(steps, f"agent/{(reward := f'{name}_reward')}") else name for name in names]
    curves = {name: series(steps, f"agent/{name}") for name in logged}
    return [
        name for name, points in curves.items() if any(value for _, value in points) or (points and name not in TERMS)
    ]


def series(steps: Sequence[Metrics], key: str) -> list[Point]:
    """Return the steps in which a metric has a finite value, with that value."""
    points = [(int(metrics["step"]), metrics.get(key)) for metrics in steps]
    return [(step, float(value)) for step, value in points if isinstance(value, int | float) and math.isfinite(value)]


def _sections(configuration: Run) -> Mapping[str, Any]:
    """Return the configuration sections of the user's components."""
    return ((configuration.get("agent_rl") or {}).get("reward") or {}).get("components") or {}


def _does_not_rise(steps: Sequence[Metrics], configuration: Run) -> Found:
    """Find a run in which no answer is right, rewards are all equal, turns are malformed, or tools fail."""
    correct = series(steps, "agent/correctness")
    if len(correct) >= FEW and not any(value for _, value in correct):
        yield (
            f"No answer was right in {len(correct)} steps.",
            "Check in agent-rl view whether right answers score 0; try another scorer with agent-rl reward score",
        )
    highest, lowest = series(steps, "critic/advantages/max"), series(steps, "critic/advantages/min")
    if len(highest) >= FEW and all(value == 0 for _, value in [*highest[-FEW:], *lowest[-FEW:]]):
        yield (
            f"Samples of each prompt have had the same reward since step {_since(highest)}: the policy learns nothing.",
            "Use easier or harder rows, algo=dapo, or a larger actor_rollout_ref.rollout.n",
        )
    malformed = series(steps, "agent/malformed_rate")
    if (share := _recent(malformed)) > HALF:
        yield (
            f"{share:.0%} of the turns up to step {malformed[-1][0]} do not have the agent's format.",
            "Use another agent, add examples to its instructions, or start with supervised training",
        )
    calls, errors = _recent(series(steps, "agent/tool_calls")), _recent(series(steps, "agent/tool_errors"))
    if calls > 0.2 and errors > 0.8 * calls:
        yield (
            f"{min(1, errors / calls):.0%} of the tool calls fail.",
            "Repeat a failed call with agent-rl tools call, and read its error",
        )
    yield from _constant(steps, configuration)
    yield from _unused(steps, configuration)


def _constant(steps: Sequence[Metrics], configuration: Run) -> Found:
    """Find components with the same value for every trajectory."""
    sections = {**((configuration.get("agent_rl") or {}).get("reward") or {}), **_sections(configuration)}
    for name in components(steps, configuration):
        section = sections.get(name) or sections.get(name.removesuffix("_reward")) or {}
        values = series(steps, f"agent/{name}")
        has_weight = section.get("penalty", section.get("weight", 1)) != 0
        all_wrong = name == "correctness" and values[0][1] == 0  # another warning covers this case
        if has_weight and len(values) >= FEWEST and len({value for _, value in values}) == 1 and not all_wrong:
            yield (
                f"The {name} component is {values[0][1]:g} in all {len(values)} steps, so it changes no advantage.",
                "Look at the component's values in agent-rl view; a constant scorer or judge does not help training",
            )


def _unused(steps: Sequence[Metrics], configuration: Run) -> Found:
    """Find a run whose agent calls no tools; the calls in verl's own loops, if any, are not counted."""
    agent = dict(leaves(configuration)).get("actor_rollout_ref.rollout.agent.default_agent_loop")
    values = [] if agent in ("single_turn_agent", "tool_agent") else series(steps, "agent/tool_calls")
    if values and not any(value for _, value in values):
        yield (
            "No tool was ever called.",
            "Look at the prompt of a trajectory, and check that the run has a tool file",
        )
    elif len(values) >= FEWEST and values[0][1] > 0.2 and _thirds(values)[1] < 0.05:
        step = next(step for step, value in values if value < 0.05)
        yield (
            f"Tools have hardly been called since step {step} ({values[0][1]:.2f} calls per trajectory at the start).",
            "Penalize calls only if the answer is right: agent_rl.reward.efficiency.gate='correctness >= 1'",
        )


def _wrong_thing(steps: Sequence[Metrics], _: Run) -> Found:
    """Find a reward that rises while correctness falls."""
    reward, correctness = series(steps, "critic/score/mean"), series(steps, "agent/correctness")
    if len(reward) < FEWEST or len(correctness) < FEWEST:
        return
    (reward_first, reward_last), (first, last) = _thirds(reward), _thirds(correctness)
    if reward_last > reward_first and last < first - FALL:
        peak = max(correctness, key=lambda point: point[1])[0]
        yield (
            f"Correctness has fallen since step {peak} ({first:.2f} in the first third of the run, {last:.2f} "
            f"in the last) while the reward rose ({reward_first:.2f}, {reward_last:.2f}): "
            "the policy learns another component.",
            "Lower the weight of that component, or add gate: correctness >= 1",
        )


def _drops(steps: Sequence[Metrics], _: Run) -> Found:
    """Find a reward that has lost more than half of its gain, or a collapsed policy."""
    reward = series(steps, "critic/score/mean")
    width = max(FEW, len(reward) // 5)
    if len(reward) >= FEWEST:
        means = [
            (reward[at][0], fmean(value for _, value in reward[at : at + width]))
            for at in range(len(reward) - width + 1)
        ]
        best, first, last = max(means, key=lambda point: point[1]), means[0][1], means[-1][1]
        if best[1] - last > max(0.2, HALF * (best[1] - first)):
            yield (
                f"The reward was {best[1]:.2f} around step {best[0]}, and is now {last:.2f}.",
                "Use a smaller actor_rollout_ref.actor.optim.lr or kl=loss, and resume from an earlier checkpoint",
            )
    for key in ("actor/kl_loss", "actor/reward_kl_penalty", "actor/ppo_kl"):
        if above := next((point for point in series(steps, key) if point[1] > LARGEST_KL), None):
            since = f"since step {above[0]} ({above[1]:.3g})"
            yield (
                f"{key} has been above {LARGEST_KL:g} {since}: the policy is far from its reference.",
                "Use a smaller actor_rollout_ref.actor.optim.lr, or kl=loss with a larger coefficient",
            )
    values = series(steps, "actor/entropy")
    if len(values) < 4 or values[-1][0] - values[0][0] < FEWEST - 1 or values[0][1] <= 0:
        return  # too few values: `agent_rl.run.log_probs_every` may skip the entropy of some steps
    start = fmean(value for _, value in values[:3])
    if values[-1][1] < COLLAPSED * start:
        step = next(step for step, value in values if value < COLLAPSED * start)
        yield (
            f"The entropy has been below a tenth of its initial value ({start:.3g}) since step {step}.",
            "Use algo=dapo, a higher actor_rollout_ref.rollout.temperature, or kl=loss",
        )


def _loops(steps: Sequence[Metrics], _: Run) -> Found:
    calls, repeated = series(steps, "agent/tool_calls"), _recent(series(steps, "agent/repeated_calls"))
    if (count := _recent(calls)) > 1 and repeated > HALF * count:
        yield (
            f"{repeated / count:.0%} of the tool calls repeat an earlier call of the same trajectory.",
            "End such episodes with agent_rl.budget.max_repeats, or set a penalty: agent_rl.reward.efficiency.penalty",
        )


def _cut_off(steps: Sequence[Metrics], _: Run) -> Found:
    values = series(steps, "response_length/clip_ratio")
    remedy = "Use a larger data.max_response_length, shorter tool results, or agent_rl.reward.overlong.penalty"
    if (share := _recent(values)) > HALF:
        yield f"{share:.0%} of the responses reach data.max_response_length.", remedy
    elif len(values) >= FEWEST:
        first, last = _thirds(values)
        if last > first + CUT_OFF:
            step = next(step for step, value in values if value > first + CUT_OFF)
            yield (
                f"More responses have reached data.max_response_length since step {step}: {first:.0%} in the first "
                f"third of the run, {last:.0%} in the last.",
                remedy,
            )


def _unscored(steps: Sequence[Metrics], _: Run) -> Found:
    lost = [point for point in series(steps, "agent/unscored") if point[1]]
    if lost:
        since = f"since step {lost[0][0]}" if len(lost) > 1 else f"in step {lost[0][0]}"
        yield (
            f"{sum(value for _, value in lost):.0f} trajectories went unscored {since}.",
            "Read the errors in agent-rl view (filter error); check the server, its timeout_s and max_concurrency",
        )


def _drift(steps: Sequence[Metrics], _: Run) -> Found:
    if above := next((point for point in series(steps, "training/rollout_probs_diff_mean") if point[1] > DRIFT), None):
        yield (
            f"Engine and trainer have disagreed since step {above[0]}: token probabilities differ by {above[1]:.3g}.",
            "Use the same dtype in both, actor_rollout_ref.rollout.enforce_eager=true, or algorithm.rollout_correction",
        )


def _idle(steps: Sequence[Metrics], _: Run) -> Found:
    step, sampling = _recent(series(steps, "timing_s/step")), _recent(series(steps, "timing_s/gen"))
    tools, writing = (_recent(series(steps, f"agent/{name}_seconds")) for name in ("tool", "generation"))
    if step and sampling > HALF * step and tools > max(writing, 1.0):
        yield (
            f"Episodes wait {tools:.1f} s for tools and {writing:.1f} s for the model, so the GPU is often idle.",
            "Adjust the tool's max_concurrency, timeout_s and cache; use a faster server, or mode=colocate_async",
        )
    scoring = _recent(series(steps, "timing_s/reward"))
    if step and scoring > HALF * step:
        yield (
            f"Scoring takes {scoring / step:.0%} of a step.",
            "Increase reward.num_workers or the judge's max_concurrency",
        )


SYMPTOMS = (
    Symptom("Before the first step", "the run does not start", "the run failed before its first step"),
    Symptom(
        "The reward does not rise",
        "the reward stays constant, for example at 0",
        f"no answer was right in {FEW} steps; a prompt's samples all have the same reward; turns are malformed; tools "
        "fail or are never called; a component is constant",
        _does_not_rise,
    ),
    Symptom(
        "The wrong thing is rewarded",
        "the reward rises, but the agent does not improve",
        "correctness falls while the reward rises",
        _wrong_thing,
    ),
    Symptom(
        "The reward drops",
        "the reward rises and then drops",
        f"more than half of the gain is lost; the KL is above {LARGEST_KL:g}; the entropy is below a tenth of its "
        "initial value",
        _drops,
    ),
    Symptom(
        "The agent loops on a tool",
        "the agent repeats the same call",
        "more than half of the calls repeat an earlier one",
        _loops,
    ),
    Symptom(
        "Responses reach the limit",
        "answers are truncated",
        "more than half of the responses reach the limit, or the share has risen by ten percentage points",
        _cut_off,
    ),
    Symptom("Trajectories go unscored", "`unscored` is not 0", "a step has unscored trajectories", _unscored),
    Symptom("Out of memory", "CUDA or host out of memory", "the run failed with an out-of-memory error"),
    Symptom("Drift", "engine and trainer log-probs differ", f"token probabilities differ by over {DRIFT:g}", _drift),
    Symptom(
        "The GPU is idle",
        "steps are slow",
        "episodes wait longer for tools than for the model; scoring takes half of a step",
        _idle,
    ),
)
"""The sections of docs/symptoms.md, from which `make docs` writes the first table of that page."""


def _recent(values: Sequence[Point]) -> float:
    """Return the mean over the last `FEW` steps, or 0 if there are fewer steps."""
    return fmean(value for _, value in values[-FEW:]) if len(values) >= FEW else 0.0


def _since(values: Sequence[Point]) -> int:
    """Return the first step from which all values are 0."""
    nonzero = [place for place, (_, value) in enumerate(values) if value != 0]
    return values[nonzero[-1] + 1 if nonzero else 0][0]


def _thirds(values: Sequence[Point]) -> tuple[float, float]:
    """Return the mean over the first third and the mean over the last third."""
    third = max(1, len(values) // 3)
    return fmean(value for _, value in values[:third]), fmean(value for _, value in values[-third:])
