"""The metrics that this package logs, by name, with what they mean; docs/reference/metrics.md is made from them.

Names stay as they are: dashboards are built on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent_rl.rewards.components.terms import SCORED_STOP_REASONS
from agent_rl.trajectory import LEFT_OUT, Trajectory

__all__ = ["COUNTED", "OF_THE_DATA", "OF_THE_REWARD", "OF_THE_STEP", "Counted", "counted"]


@dataclass(frozen=True, slots=True)
class Counted:
    """A number of one trajectory.

    Attributes:
        of: computes it.
        meaning: of its mean over the trajectories of a step.
    """

    of: Callable[[Trajectory], float]
    meaning: str


def counted(trajectory: Trajectory) -> dict[str, float]:
    """The numbers of one trajectory that do not depend on its reward."""
    return {name: float(each.of(trajectory)) for name, each in COUNTED.items()} | {
        f"stop_{reason.value}": float(trajectory.stop_reason is reason) for reason in SCORED_STOP_REASONS
    }


COUNTED = {
    "tool_calls": Counted(lambda t: t.tool_calls, "calls of tools, executed or not"),
    "tool_errors": Counted(lambda t: t.tool_errors, "calls that did not end well"),
    "repeated_calls": Counted(lambda t: t.repeated_calls, "calls that were equal to an earlier one"),
    "malformed_turns": Counted(lambda t: t.malformed_turns, "turns that the format could not read"),
    "malformed_rate": Counted(
        lambda t: t.malformed_turns / len(t.turns) if t.turns else 0.0, "share of the turns that are malformed"
    ),
    "turns": Counted(lambda t: len(t.turns), "turns of the policy"),
    "answered": Counted(lambda t: t.answer is not None, "share of the trajectories with an answer"),
    "left_out": Counted(
        lambda t: bool(t.info.get(LEFT_OUT)),
        "share of the trajectories of which nothing is trained on: `agent_rl.mask_overlong`, `agent_rl.mask_void`",
    ),
    "tool_seconds": Counted(lambda t: t.tool_seconds, "seconds of waiting for tools, or a simulated user"),
    "generation_seconds": Counted(lambda t: t.generation_seconds, "seconds of waiting for the engine"),
}
OF_THE_REWARD = {
    "acc": "the component `correctness`; missing without a scorer",
    "correctness": "what the scorer or the judge of correctness gave",
    "<component>": "the value of a component of the reward, unweighted: `format`, `efficiency`, `overlong`, yours",
    "<component>_<number>": "what a component logs besides its value: `raw`, `open` (its gate), a model's score",
}
OF_THE_STEP = {
    "unscored": "trajectories without a score since the last step, without a validation's; they do not enter training",
    "kept_share": "share of the trajectories since the last step that were trained on, and so on for these fates:",
    "lost_share": "those that failed",
    "evicted_share": "those with a score whose group had too few of them, or no greedy answer (ReMax)",
    "filtered_share": "those that `algorithm.filter_groups` replaced, because the rewards of their group were equal",
    "stale_share": "those that were replaced because they were sampled too many steps ago",
    "<fate>_tokens": "response tokens of such a trajectory, sampled and observed; mean over those that are known",
    "<fate>_turns": "turns of such a trajectory; mean over those that are known",
    "skipped_updates": "updates without a token, or without a group, to train on; they were skipped",
    "greedy_reward": "ReMax: reward of the greedy answers, mean over the prompts",
    "without_baseline": "ReMax: prompts without a greedy answer, which were left out",
}
OF_THE_DATA = {
    "rows": "rows that can be drawn",
    "visited": "rows that were drawn at least once",
    "dropped": "rows that are not drawn any more",
    "in_band": "rows with a success rate within `agent_rl.data.band`",
    "stage": "stage of the curriculum, from 1",
    "to_replay": "failed rows that will be drawn again",
    "share/<source>": "share of a data source in the step",
    "success/<source>": "success rate of a data source in the step",
}
