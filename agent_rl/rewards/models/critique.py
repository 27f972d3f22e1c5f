"""`Critic`: a generative model writes a critique of the response, which a discriminative one then reads and scores.

    kind: reward_model
    config:
      critique: {url: "http://localhost:8000", model: Qwen/Qwen3-8B}    # or http://served/<name>/v1
      models: {preferred: {url: "http://localhost:8001", tokenizer: my-rm}}

As in Critic-RM (Yu et al., 2024, arXiv 2411.16646), except that the two are different models.
"""

from __future__ import annotations

from dataclasses import replace

from agent_rl.errors import UnscoredError
from agent_rl.remote import ChatClient
from agent_rl.rewards.judge.reply import THOUGHTS_END
from agent_rl.rewards.models.conversation import GenerativeConfig, fill_in, load_template, reply_to, texts
from agent_rl.trajectory import Trajectory

__all__ = ["Critic", "CriticConfig"]

HEADING = "Critique:"


class CriticConfig(GenerativeConfig):
    """`critique` of the component `reward_model`."""


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
        question = fill_in(self._template, *texts(trajectory, self.config.shown))
        async with self._client as client:
            reply = await reply_to(question, client, self.config)
        critique = reply.rpartition(THOUGHTS_END)[2].strip()
        if not critique:
            raise UnscoredError("the critic wrote nothing")
        addition = f"\n\n{HEADING}\n{critique}"
        turns = list(trajectory.turns)
        if turns:
            turns[-1] = replace(turns[-1], text=turns[-1].text + addition)
        return replace(trajectory, turns=turns, answer=(trajectory.answer or "") + addition)
