"""The names and meanings of the metrics that this package logs; docs/reference/metrics.md is generated from them.

Do not rename a metric: users' dashboards depend on the names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent_rl.rewards.components.terms import SCORED_STOP_REASONS
from agent_rl.trajectory import LEFT_OUT, Trajectory


def counted(trajectory: Trajectory) -> dict[str, float]:
    """Compute the metrics of one trajectory that do not depend on its reward."""
    metrics = COUNTED | (OF_THE_GATEWAY if "gateway" in trajectory.info else {})
    return {name: float(count(trajectory)) for name, (count, _) in metrics.items()} | {
        f"stop_{reason.value}": float(trajectory.stop_reason is reason) for reason in SCORED_STOP_REASONS
    }


def component_metrics(components: Mapping[str, float]) -> dict[str, float]:
    """Return the components' values by logged name; a component named `turns`, like a metric, is `turns_reward`."""
    return {f"{name}_reward" if name in _TAKEN else name: value for name, value in components.items()}


COUNTED: dict[str, tuple[Callable[[Trajectory], float], str]] = {
    "tool_calls": (lambda t: t.tool_calls, "tool calls, executed or not"),
    "tool_errors": (lambda t: t.tool_errors, "calls that failed"),
    "repeated_calls": (lambda t: t.repeated_calls, "calls that repeat an earlier call"),
    "malformed_turns": (lambda t: t.malformed_turns, "turns that do not follow the format"),
    "malformed_rate": (
        lambda t: t.malformed_turns / len(t.turns) if t.turns else 0.0,
        "share of the turns that are malformed",
    ),
    "turns": (lambda t: len(t.turns), "the policy's turns"),
    "answered": (lambda t: t.answer is not None, "share of the trajectories with an answer"),
    "left_out": (
        lambda t: bool(t.info.get(LEFT_OUT)),
        "share of the trajectories in which no token is trained: see `agent_rl.mask_overlong` and `agent_rl.mask_void`",
    ),
    "tool_seconds": (lambda t: t.tool_seconds, "seconds spent waiting for tools or a simulated user"),
    "generation_seconds": (lambda t: t.generation_seconds, "seconds spent waiting for the engine"),
}
"""For each metric of a trajectory: the function that computes it, and the meaning of the metric or of its mean."""
OF_THE_GATEWAY: dict[str, tuple[Callable[[Trajectory], float], str]] = {
    "gateway_sequences": (lambda t: t.info["gateway"]["conversations"], "trained sequences of a session"),
    "gateway_unfetched": (lambda t: t.info["gateway"].get("unfetched", 0), "turns that no client received"),
    "gateway_too_long": (lambda t: t.info["gateway"].get("too_long", 0), "requests that exceeded the token limits"),
    "gateway_unforced": (
        lambda t: t.info["gateway"].get("unenforced_tool_choices", 0) / max(1, len(t.turns)),
        "share of the turns without the tool call that the program required (`tool_choice`)",
    ),
    "gateway_failed": (lambda t: "program" in t.info, "share of the sessions whose program failed"),
}
_TAKEN = {"acc", "reward", *COUNTED, *OF_THE_GATEWAY, *(f"stop_{reason.value}" for reason in SCORED_STOP_REASONS)}
"""Names of a trajectory's other metrics, and `reward`, which verl adds itself."""
OF_THE_REWARD = {
    "acc": "the `correctness` component; missing if answers are not scored",
    "correctness": "the correctness of the answer, from the scorer or another source of the verdict",
    "<component>": "the unweighted value of a component: `format`, `efficiency`, `overlong` or your own; a component "
    "with the name of another metric is logged as `<component>_reward`, for example `turns_reward`",
    "<component>_<number>": "another number that a component logs, such as `raw`, `open` (its gate) or a model's score",
}
OF_THE_STEP = {
    "unscored": "unscored trajectories since the last step, which do not enter training; validation is not counted",
    "kept_share": "share of the trajectories since the last step that are used in the update",
    "masked_share": "share of the trajectories since the last step that are in a batch, but have no trained token "
    "(`agent_rl.mask_overlong`, `agent_rl.mask_void`); their rewards count in their groups",
    "lost_share": "share of the trajectories since the last step that failed",
    "ended_share": "share of the trajectories since the last step that were stopped early and left out: see "
    "`agent_rl.run.max_sampling_s`",
    "evicted_share": "share of the trajectories that were scored but left out, because their group has too few scores, "
    "or no greedy answer (ReMax)",
    "filtered_share": "share of trajectories that `algorithm.filter_groups` replaced because all rewards in their "
    "group were equal",
    "stale_share": "share of trajectories that were replaced because they were sampled too many steps ago",
    "<fate>_tokens": "mean tokens, sampled and observed, of trajectories whose fate is `<fate>` (`kept`, `lost`, ...)",
    "<fate>_turns": "mean number of turns of trajectories whose fate is `<fate>` (`kept`, `lost`, ...)",
    "<fate>_reward": "mean reward of trajectories whose fate is `<fate>`; `lost` trajectories have no reward",
    "<fate>_prompt_reward": "mean reward of the scored samples of a prompt, averaged over the trajectories whose fate "
    "is `<fate>`; low for difficult prompts",
    "bias_tokens": "mean response tokens of the kept trajectories minus the mean of all trajectories since the last "
    "step",
    "bias_turns": "mean turns of the kept trajectories minus the mean of all trajectories since the last step",
    "bias_prompt_reward": "mean prompt reward: kept minus all trajectories; positive if hard prompts are left out",
    "bias_reward": "estimated mean reward: kept minus all trajectories; unscored samples count as the prompt's mean",
    "bias_reward_bound": "largest possible size of the reward difference, if the rewards of lost trajectories are "
    "within the range of rewards seen in the run",
    "skipped_updates": "updates that were skipped because no token or no group remained for training",
    "greedy_reward": "ReMax: mean reward of the prompts' greedy answers",
    "without_baseline": "ReMax: prompts that were left out because they have no greedy answer",
}
OF_THE_DATA = {
    "rows": "rows that can be drawn",
    "visited": "rows that have been drawn at least once",
    "dropped": "rows that are no longer drawn",
    "in_band": "rows with a success rate within `agent_rl.data.band`",
    "stage": "stage of the curriculum, counted from 1",
    "to_replay": "failed rows that will be drawn again",
    "share/<source>": "share of the step's rows that come from a data source",
    "success/<source>": "success rate of a data source in the step",
}
