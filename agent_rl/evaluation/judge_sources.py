"""What can be measured as a judge: a chat endpoint with a prompt template, a reward model, or a class of your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from agent_rl.reasoning_rm.reward_module import RewardModule
from agent_rl.reasoning_rm.sample import DataSample
from agent_rl.remote import ChatClient, EndpointConfig
from agent_rl.rewards.judge.kinds import chat_thinks
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate
from agent_rl.rewards.judge.verdict import pair_form
from agent_rl.rewards.models.model import Model, ModelConfig
from agent_rl.trajectory import Message, StopReason, Trajectory, Turn

__all__ = ["ClassifierJudge", "JudgeSource", "TemplateJudge"]


class JudgeSource(ABC):
    """Judges samples."""

    compares = False
    """Whether it compares the answers of a pair; otherwise it scores one answer at a time."""

    @abstractmethod
    async def judge(self, sample: DataSample) -> float | str:
        """The score of a sample's only answer, or `A`, `B` or `tie` for a pair.

        Raises:
            VerdictError: the reply has no verdict.
            UnscoredError: there is no reply.
        """


class TemplateJudge(JudgeSource):
    """A generative model at a chat endpoint, asked by a prompt template.

    Args:
        endpoint: its address and name.
        template: its verdict has the field `score` or `preference`.
        body: further fields of the request.

    Raises:
        ConfigError: the API key is missing.
    """

    def __init__(
        self, endpoint: EndpointConfig, template: type[BasePromptTemplate], body: Mapping[str, Any] | None = None
    ) -> None:
        self._body, self._client = dict(body or {}), ChatClient(endpoint)
        self._module = RewardModule("rm eval", template, enable_thinking=not chat_thinks(self._body))
        self.compares = self._module.kind == "pairwise"

    async def judge(self, sample: DataSample) -> float | str:
        """The verdict of one reply."""
        messages = [{"role": "user", "content": self._module.format(sample)}]
        async with self._client as client:
            completion = await client.chat({"messages": messages, **self._body})
        verdict: Any = self._module.parse(completion.text, sample)
        return str(pair_form().of(verdict).winner) if self.compares else float(verdict.score)


class ClassifierJudge(JudgeSource):
    """A discriminative reward model, with the keys of the component `reward_model`.

    Raises:
        ConfigError: see `Model`.
    """

    def __init__(self, config: ModelConfig) -> None:
        self._model = Model("model", "rm eval", config)

    async def judge(self, sample: DataSample) -> float:
        """The score of the answer."""
        asked = f"{sample.context}\n\n{sample.query}" if sample.context else sample.query
        (answer,) = sample.answers
        trajectory = Trajectory([Message("user", asked)], StopReason.ANSWERED, turns=[Turn(answer)], answer=answer)
        score, _ = await self._model.score(trajectory)
        return score
