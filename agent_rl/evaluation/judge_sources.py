"""What can be measured as a judge: a chat endpoint with a prompt template, a reward model, or a class of your own."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.reasoning_rm.sample import DataSample
from agent_rl.remote import ChatClient, EndpointConfig
from agent_rl.rewards.judge.kinds import kind_of
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate
from agent_rl.rewards.judge.verdict import VerdictError, winner
from agent_rl.rewards.models.model import Model, ModelConfig
from agent_rl.trajectory import Message, StopReason, Trajectory, Turn

__all__ = ["ClassifierJudge", "JudgeSource", "TemplateJudge"]


class JudgeSource(ABC):
    """Judges samples; a method that is not overridden says that it judges otherwise."""

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
        template: pointwise or pairwise.
        body: further fields of the request.

    Raises:
        ConfigError: the API key is missing, or the template judges otherwise.
    """

    def __init__(
        self, endpoint: EndpointConfig, template: type[BasePromptTemplate], body: Mapping[str, Any] | None = None
    ) -> None:
        kind = kind_of(template)
        if kind not in ("pointwise", "pairwise"):
            problem = f"{template.__name__} is {kind}: only scores and comparisons of two are measured here"
            raise ConfigError("--template", problem, "Give a template with the field score or preference")
        self.compares, self._template, self._body = kind == "pairwise", template, dict(body or {})
        self._client = ChatClient(endpoint)
        thinking = (self._body.get("chat_template_kwargs") or {}).get("enable_thinking")
        self._asks_for_thoughts = not thinking

    async def judge(self, sample: DataSample) -> float | str:
        """The verdict of one reply."""
        prompt = self._template.ask(
            sample.query, sample.answers, context=sample.context, criteria=sample.criteria,
            enable_thinking=self._asks_for_thoughts,
        )  # fmt: skip
        async with self._client as client:
            completion = await client.chat({"messages": [{"role": "user", "content": prompt}], **self._body})
        verdict: Any = self._template.read(completion.text, "\n".join(sample.answers))
        if not self.compares:
            return float(verdict.score)
        said = winner(verdict.preference)
        if said not in ("A", "B", "tie"):
            raise VerdictError(f"{said!r} is none of A, B and tie")
        return str(said)


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
        said = Trajectory([Message("user", asked)], StopReason.ANSWERED, turns=[Turn(answer)], answer=answer)
        fitted, _ = await self._model.fitted(said)
        return await self._model.score(fitted)


async def verdict_of(source: JudgeSource, sample: DataSample) -> float | str | VerdictError | UnscoredError:
    """The verdict, or why there is none."""
    try:
        return await source.judge(sample)
    except (VerdictError, UnscoredError) as error:
        return error


async def verdicts_of(source: JudgeSource, samples: list[DataSample]) -> list[Any]:
    """Of several samples, asked at the same time."""
    return list(await asyncio.gather(*(verdict_of(source, sample) for sample in samples)))
