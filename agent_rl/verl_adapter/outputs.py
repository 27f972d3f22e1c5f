"""An agent loop's output on its way through verl's worker: to the reward manager, and from there to the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from agent_rl.agents.episode.loop import new_trajectory
from agent_rl.data import unpacked
from agent_rl.trajectory import StopReason, Trajectory, Turn
from agent_rl.verl_adapter.manager import TrajectoryRewardManager

__all__ = ["TRAJECTORY", "EpisodeOutput", "give_trajectory", "whole_row"]

TRAJECTORY = "trajectory"
"""Key of the `Trajectory` in `extra_fields`."""


class EpisodeOutput(AgentLoopOutput):
    """verl's output, with the reward on the last token that is trained on: some estimators do not read it elsewhere."""

    def as_dict(self) -> dict[str, Any]:
        """As verl's, with the reward moved."""
        fields: dict[str, Any] = super().as_dict()
        if "rm_scores" in fields and any(self.response_mask):
            fields["rm_scores"] = fields["rm_scores"].roll(-self.response_mask[::-1].index(1))
        return fields


def whole_row(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The row as it was made, also where verl's own data set gives it as it is stored."""
    row = unpacked(columns)
    info = row.get("extra_info") or {}
    return row | {name: info[name] for name in ("index", "tools_kwargs") if info.get(name) is not None}


def give_trajectory(output: AgentLoopOutput, columns: Mapping[str, Any], tokenizer: Any, manager: type[Any]) -> None:
    """Put into `extra_fields` what the reward manager reads.

    `TrajectoryRewardManager` and classes derived from it get the `Trajectory` of our loops as it is. For any other loop
    they get one without an agent's name, whose only turn and whose answer are the decoded response. Other managers get
    JSON data.

    Args:
        output: the last output of a session.
        columns: the row, as verl's worker gave it to the loop.
        tokenizer: decodes the response.
        manager: the class of the reward manager.
    """
    trajectory = output.extra_fields.get(TRAJECTORY)
    if not issubclass(manager, TrajectoryRewardManager):
        if isinstance(trajectory, Trajectory):
            output.extra_fields[TRAJECTORY] = trajectory.to_dict()
    elif trajectory is None:
        trajectory = _of_response(output, columns, tokenizer)
        output.extra_fields = {**output.extra_fields, TRAJECTORY: trajectory}  # pydantic dumps no changed default


def _of_response(output: AgentLoopOutput, columns: Mapping[str, Any], tokenizer: Any) -> Trajectory:
    trajectory = new_trajectory(whole_row(columns), "")
    text, tokens = str(tokenizer.decode(output.response_ids, skip_special_tokens=True)), len(output.response_ids)
    trajectory.stop_reason = StopReason.ANSWERED
    trajectory.turns, trajectory.answer = [Turn(text=text, tokens=tokens)], text
    trajectory.prompt_tokens, trajectory.response_tokens = len(output.prompt_ids), tokens
    return trajectory
