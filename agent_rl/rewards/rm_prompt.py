"""`with_judge_prompt`: the trajectory as judges and reward models see it, with the row's `rm_prompt`.

    rm_prompt: [{"role": "user", "content": "Is this polite?"}]                    # for all judges and reward models
    rm_prompt.polite: [...]     # the column, or the key of extra_info: for the component or model `polite` alone

The response stays the policy's. If `rm_prompt` is missing or empty, they see the policy's prompt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_rl.errors import UnscoredError
from agent_rl.trajectory import Message, Trajectory

__all__ = ["with_judge_prompt"]

COLUMN = "rm_prompt"


def with_judge_prompt(trajectory: Trajectory, *names: str) -> Trajectory:
    """Return the trajectory with the row's prompt for the first name that has one, else with its `rm_prompt`.

    Raises:
        UnscoredError: the row's `rm_prompt` is not text or messages.
    """
    for key in (*(f"{COLUMN}.{name}" for name in names), COLUMN):
        given = trajectory.row.get(key) or trajectory.extra_info.get(key)
        if given:
            return replace(trajectory, prompt=_messages(given, key, trajectory))
    return trajectory


def _messages(given: Any, key: str, trajectory: Trajectory) -> list[Message]:
    if isinstance(given, str):
        return [Message(role="user", content=given)]
    try:
        return [Message.from_chat(message) for message in given]
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"row {trajectory.info.get('index')!r}: {key} is not text or messages ({given!r:.80})"
        raise UnscoredError(problem) from error
