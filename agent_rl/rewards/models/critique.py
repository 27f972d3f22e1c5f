"""`Critic`: a generative model writes a critique of the response, which a discriminative one then reads and scores.

    kind: reward_model
    config:
      critique: {url: "http://localhost:8000", model: Qwen/Qwen3-8B}    # or http://served/<name>/v1
      models: {preferred: {url: "http://localhost:8001", tokenizer: my-rm}}

As in Critic-RM (Yu et al., 2024, arXiv 2411.16646), except that the two are different models.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field

from agent_rl.errors import UnscoredError
from agent_rl.remote import ChatClient, EndpointConfig
from agent_rl.rewards.models.conversation import Shown, fill_in, load_template, texts
from agent_rl.trajectory import Trajectory

__all__ = ["Critic", "CriticConfig"]

HEADING = "Critique:"
_THOUGHTS_END = "</think>"


class CriticConfig(EndpointConfig):
    """`critique` of the component `reward_model`."""

    template: str | None = None
    """File with the question: `{prompt}`, `{response}` and, around them, `{mark}`; null: built in."""
    shown: Shown = "conversation"
    """What the critic sees after the prompt: all turns with their observations, or the final answer alone."""
    temperature: float = Field(default=0.0, ge=0)
    max_tokens: int = Field(default=512, ge=1)
    """Of a critique, with its thoughts, which are left out."""
    request: dict[str, Any] = Field(default_factory=dict)
    """More keys of the request."""


class Critic:
    """Writes critiques.

    Args:
        key: its full key, for messages.
        config: the model, and its question.

    Raises:
        ConfigError: template or API key are missing or cannot be read.
    """

    def __init__(self, key: str, config: CriticConfig) -> None:
        self.config = config
        self._template = load_template(config.template, "critique", key)
        self._client = ChatClient(config, key)

    async def reviewed(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with a critique after its response.

        Raises:
            UnscoredError: the critic gave none.
        """
        config = self.config
        question = fill_in(self._template, *texts(trajectory, config.shown))
        sampling = {"temperature": config.temperature, "max_tokens": config.max_tokens, **config.request}
        async with self._client as client:
            completion = await client.chat({"messages": [{"role": "user", "content": question}], **sampling})
        critique = completion.text.rpartition(_THOUGHTS_END)[2].strip()
        if not critique:
            raise UnscoredError("the critic wrote nothing")
        addition = f"\n\n{HEADING}\n{critique}"
        turns = list(trajectory.turns)
        if turns:
            turns[-1] = replace(turns[-1], text=turns[-1].text + addition)
        return replace(trajectory, turns=turns, answer=(trajectory.answer or "") + addition)
