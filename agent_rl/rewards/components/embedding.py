"""`embedding`: how near the answer is in meaning to the ground truth, by an endpoint of embeddings.

    components:
      meaning:
        kind: embedding
        config: {url: "http://localhost:30000", model: BAAI/bge-m3, api_key_env: EMBEDDING_KEY}

The value is the cosine of both texts' embeddings from `POST <url>/v1/embeddings` (OpenAI's protocol; SGLang, vLLM and
text-embeddings-inference serve it), in [-1, 1]; of several ground truths, the nearest counts. No answer is 0. What this
does not promise: that near in meaning is right: "Paris" and "Rome" are near. Gate it by something that knows.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from agent_rl.remote import Remote, RemoteLimits
from agent_rl.remote.responses import RemoteError
from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.rewards.scorers.qa import read_targets
from agent_rl.rewards.scorers.scorer import unusable
from agent_rl.secrets import secret
from agent_rl.trajectory import Trajectory

__all__ = ["Embedding", "EmbeddingConfig"]

_KEPT = 1024  # embeddings of ground truths


class EmbeddingConfig(ComponentConfig):
    """The endpoint."""

    url: str = Field(pattern="^https?://.")
    """Address of the server, with or without /v1."""
    model: str = Field(min_length=1)
    api_key_env: str | None = None
    """Name of the environment variable that holds a bearer token."""
    prefix: str = ""
    """What the model wants before every text, for example `query: `."""
    max_chars: int = Field(default=8_000, ge=1)
    """Characters of a text that are sent, from its begin."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Seconds of one attempt."""
    total_s: float = Field(default=120.0, gt=0)
    """Seconds of all attempts."""
    max_concurrent: int = Field(default=32, ge=1)
    """Requests at one time, for each process."""


class Embedding(Component):
    """Cosine similarity of the answer and the ground truth."""

    Config = EmbeddingConfig

    def __init__(self, name: str, config: EmbeddingConfig) -> None:
        super().__init__(name, config)
        headers = {}
        if config.api_key_env is not None:
            key = f"agent_rl.reward.components.{name}.config.api_key_env"
            headers["Authorization"] = f"Bearer {secret(config.api_key_env, key=key)}"
        limits = RemoteLimits(
            timeout_s=config.timeout_s,
            total_s=config.total_s,
            max_concurrent=config.max_concurrent,
            max_bytes=64 * 1024 * 1024,
        )
        self._url = config.url.rstrip("/").removesuffix("/v1") + "/v1/embeddings"
        self._remote = Remote(headers=headers, limits=limits)
        self._truths: OrderedDict[str, tuple[float, ...]] = OrderedDict()

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
        missing = [truth for truth in dict.fromkeys(truths) if truth not in self._truths]
        answer, *found = await self._embed([trajectory.answer, *missing])
        known = dict(zip(missing, found, strict=True))
        near = max(_cosine(answer, known[truth] if truth in known else self._truths[truth]) for truth in truths)
        self._truths.update(known)
        while len(self._truths) > _KEPT:
            self._truths.popitem(last=False)
        return Value(near)

    async def _embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        config = self.config
        sent = [config.prefix + text[: config.max_chars].encode("utf-8", "replace").decode() for text in texts]
        answer = await self._remote.post_json(self._url, {"model": config.model, "input": sent})
        vectors = _vectors(answer, len(sent))
        if vectors is None:
            raise RemoteError(self._url.split("/")[2].rpartition("@")[2], "the answer is not a list of embeddings")
        return vectors


def _vectors(answer: Any, count: int) -> list[tuple[float, ...]] | None:
    """The embeddings in the order of the texts, normalised; None when something is missing or is no direction."""
    data = answer.get("data") if isinstance(answer, Mapping) else None
    if not isinstance(data, list) or len(data) != count or not all(isinstance(item, Mapping) for item in data):
        return None
    if all(isinstance(item.get("index"), int) for item in data):
        data = sorted(data, key=lambda item: item["index"])
    vectors = []
    for item in data:
        values = item.get("embedding")
        if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
            return None
        length = math.hypot(*values)
        if not math.isfinite(length) or not length:
            return None
        vectors.append(tuple(value / length for value in values))
    return vectors if len({len(vector) for vector in vectors}) == 1 else None


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return max(-1.0, min(1.0, sum(left * right for left, right in zip(one, other, strict=True))))
