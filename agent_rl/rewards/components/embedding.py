"""`embedding`: the similarity of the answer and the ground truth, by the embeddings of an endpoint.

    components:
      meaning:
        kind: embedding
        config: {url: "http://localhost:30000", model: BAAI/bge-m3, api_key_env: EMBEDDING_KEY}

The run can serve the model itself: `agent_rl.reward.models.bge: {kind: embedding, path: BAAI/bge-m3}`, and the url is
`http://served/bge`.

The value is the cosine of both texts' embeddings from `POST <url>/v1/embeddings` (OpenAI's protocol; SGLang, vLLM and
text-embeddings-inference serve it), in [-1, 1]; of several ground truths, the most similar counts. A missing answer is
0. A similar answer may be wrong ("Paris" and "Rome" are similar): gate the component by one that checks the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from agent_rl.remote import ChatClient, EndpointConfig
from agent_rl.rewards.component import Component, Value
from agent_rl.rewards.scorers.qa import read_targets
from agent_rl.rewards.scorers.scorer import unusable
from agent_rl.tools.truncation import encodable
from agent_rl.trajectory import Trajectory

__all__ = ["Embedding", "EmbeddingConfig"]

_MISSING = "embedding of each text"


class EmbeddingConfig(EndpointConfig):
    """The endpoint, and the form of its input."""

    prefix: str = ""
    """Prefix of every text that the model expects, for example `query: `."""
    max_chars: int = Field(default=8_000, ge=1)
    """Characters of a text that are sent, from its beginning."""
    max_bytes: int = Field(default=64 * 1024 * 1024, ge=1)


class Embedding(Component, kind="embedding"):
    """Cosine similarity of the answer and the ground truth."""

    Config = EmbeddingConfig

    def __init__(self, name: str, config: EmbeddingConfig) -> None:
        super().__init__(name, config)
        self._client = ChatClient(config, f"agent_rl.reward.components.{name}.config")

    async def measure(self, trajectory: Trajectory) -> Value:
        """The cosine.

        Raises:
            UnscoredError: there is no ground truth in words, or the endpoint failed.
        """
        truths = [text for text in read_targets(trajectory.ground_truth) if text.strip()]
        if not truths:
            raise unusable(trajectory.ground_truth, "a text")
        if trajectory.answer is None or not trajectory.answer.strip():
            return Value(0.0)
        answer, *others = await self._embedded([trajectory.answer, *truths])
        return Value(max(_cosine(answer, other) for other in others))

    async def _embedded(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        """The normalised embeddings, in the order of the texts.

        Raises:
            UnscoredError: the endpoint failed.
        """
        sent = [self.config.prefix + encodable(text[: self.config.max_chars]) for text in texts]
        body = {"model": self.config.model, "input": sent}
        return await self._client.post("/embeddings", body, lambda answer: _vectors(answer, len(sent)), _MISSING)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Of normalised vectors."""
    return max(-1.0, min(1.0, sum(left * right for left, right in zip(one, other, strict=True))))


def _vectors(answer: Any, count: int) -> list[tuple[float, ...]]:
    """The embeddings in the order of the texts, normalised.

    Raises:
        TypeError, LookupError: one is missing, or has no direction.
    """
    data = answer["data"]
    if all(isinstance(item.get("index"), int) for item in data):
        data = sorted(data, key=lambda item: item["index"])
    vectors = []
    for item in data:
        values = item["embedding"]
        length = math.hypot(*values)
        if not math.isfinite(length) or not length:
            raise TypeError
        vectors.append(tuple(value / length for value in values))
    if len(vectors) != count or len({len(vector) for vector in vectors}) != 1:
        raise TypeError
    return vectors
