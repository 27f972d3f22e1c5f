"""The input of a reward model: a trajectory as chat messages, or as two texts.

The loop's instructions and the tools' descriptions are included if the trajectory's prompt has them. Observations (tool
results, a user's messages) have the role `user`: few chat templates of reward models know another.
"""

from __future__ import annotations

from typing import Literal

from agent_rl.tools.truncation import encodable
from agent_rl.trajectory import Trajectory

__all__ = ["ChatMessage", "Shown", "messages", "texts"]

ChatMessage = dict[str, str]
Shown = Literal["conversation", "answer"]


def messages(trajectory: Trajectory, shown: Shown) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """The prompt and the response: all turns, or the final answer as one message (empty without an answer)."""
    prompt = [{"role": message.role, "content": encodable(message.content)} for message in trajectory.prompt]
    if shown == "answer":
        return prompt, [{"role": "assistant", "content": encodable(trajectory.answer or "")}]
    response: list[ChatMessage] = []
    for turn in trajectory.turns:
        response.append({"role": "assistant", "content": encodable(turn.text)})
        if turn.observation is not None:
            response.append({"role": "user", "content": encodable(turn.observation)})
    return prompt, response


def texts(trajectory: Trajectory, shown: Shown) -> tuple[str, str]:
    """Prompt and response as texts; of several messages, each begins with its role."""
    prompt, response = messages(trajectory, shown)
    return _text(prompt), _text(response)


def _text(said: list[ChatMessage]) -> str:
    if len(said) == 1:
        return said[0]["content"]
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in said)
