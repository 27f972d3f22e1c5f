"""`with_judge_prompt`: replaces a trajectory's prompt with the row's `rm_prompt`, for judges and reward models.

    rm_prompt: [{"role": "user", "content": "Is this polite?"}]     # for all judges and reward models
    rm_prompt.polite: [...]                                         # only for the component or model `polite`

These prompts are columns of the row, or entries of its `extra_info`. The policy's response does not change. If
`rm_prompt` is missing or empty, judges and reward models see the policy's prompt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_rl.errors import UnscoredError
from agent_rl.trajectory import Message, Trajectory

COLUMN = "rm_prompt"


def with_judge_prompt(trajectory: Trajectory, *names: str) -> Trajectory:
    """Replace the prompt with the row's `rm_prompt.<name>`, for the first name that the row has, or with `rm_prompt`.

    Raises:
        UnscoredError: the row's `rm_prompt` is neither text nor a list of messages.
    """
    for key in (*(f"{COLUMN}.{name}" for name in names), COLUMN):
        prompt = trajectory.row.get(key) or trajectory.extra_info.get(key)
        if prompt:
            return replace(trajectory, prompt=_messages(prompt, key, trajectory))
    return trajectory


def _messages(prompt: Any, key: str, trajectory: Trajectory) -> list[Message]:
    if isinstance(prompt, str):
        return [Message(role="user", content=prompt)]
    try:
        return [Message.from_chat(message) for message in prompt]
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"row {trajectory.info.get('index')!r}: {key} is not text or messages ({prompt!r:.80})"
        raise UnscoredError(problem) from error
