r"""`Model`: one reward model at one address, its requests, and how a reply becomes a number.

A *discriminative* model (Bradley-Terry) reads a conversation and gives a number, by the endpoints that verl uses:
`/v1/embeddings` of SGLang, `/classify` of vLLM. A *generative* model gets a question in a chat and writes a reply with
a number in it. The file that `hooks` names can replace both steps:

    def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):   # lists of texts, the model's tokenizer or None
        return [f"{prompt}\n{response}" for prompt, response in zip(text_prompts, text_responses)]

    def rm_postprocess(results):   # discriminative: a list of numbers for each; generative: a text for each
        return [float(numbers[0]) for numbers in results]

Either may be a coroutine. A trajectory without a usable score is unscored.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any, Literal

from pydantic import Field, model_validator

from agent_rl.errors import ConfigError, FatalError, UnscoredError
from agent_rl.remote import ChatClient, RemoteError
from agent_rl.rewards.judge.kinds import chat_thinks, find_template, names_a_class, scale_of
from agent_rl.rewards.judge.prompt import question_and_context
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate
from agent_rl.rewards.judge.verdict import VerdictError
from agent_rl.rewards.models.batching import MicroBatches
from agent_rl.rewards.models.conversation import (
    GenerativeConfig,
    fill_in,
    load_template,
    messages,
    read_score,
    reply_to,
    texts,
)  # fmt: skip
from agent_rl.rewards.models.fitting import Keep, fit
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.trajectory import Trajectory

__all__ = ["Model", "ModelConfig"]

PREPROCESS, POSTPROCESS = "rm_preprocess", "rm_postprocess"
_MISSING = "scores: is the model a classifier?"
DISCRIMINATIVE_BATCHES = 4
"""Concurrent requests: the engine batches requests itself."""


class ModelConfig(GenerativeConfig):
    """One entry of `models`: the model, its address and its limits."""

    url: str | None = Field(default=None, pattern="^https?://.")  # type: ignore[assignment]
    """The server's address, with or without `/v1`; null: the model of this name below `agent_rl.reward.models`."""
    model: str = "default"
    timeout_s: float = Field(default=120.0, gt=0)
    total_s: float = Field(default=300.0, gt=0)
    max_concurrent: int = Field(default=64, ge=1)
    kind: Literal["discriminative", "generative"] = "discriminative"
    engine: Literal["sglang", "vllm"] = "sglang"
    """The engine that serves a discriminative model."""
    tokenizer: str | None = None
    """Folder or hub name of its tokenizer; its chat template renders the text for a discriminative model."""
    weight: float = 1.0
    """0: its score is logged and does not count."""
    hooks: str | None = None
    """`path/to/file.py` or `package.module` with `rm_preprocess`, `rm_postprocess`, or both."""
    max_batch: int = Field(default=32, ge=1)
    """Most trajectories in one batch."""
    template: str | None = None
    """File with a generative model's question: `{prompt}`, `{response}` and, around them, `{mark}`; or a prompt
    template, `file.py:Name` (`agent_rl.rewards.judge.kinds`), as which it was trained to judge; null: built in."""
    prompt_length: int | None = Field(default=None, ge=1)
    """Most tokens of the prompt, by `tokenizer`; a longer one is cut, and counted. null: all."""
    response_length: int | None = Field(default=None, ge=1)
    """The same of the response."""
    keep: Keep = "tail"
    """Which end of a longer text is kept."""
    range: tuple[float, float] | None = None
    """Bounds of a score, which are mapped to 0 and 1; a score outside is unscored. null: 0 to 10 for a generative model
    without `rm_postprocess` (that of its prompt template's score), else any number unchanged."""

    @model_validator(mode="after")
    def _ordered(self) -> ModelConfig:
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError("range: the first number must be below the second")
        if self.tokenizer is None and self.url is not None and (self.prompt_length or self.response_length):
            raise ValueError("prompt_length and response_length are counted by the model's tokenizer: name its folder")
        return self


class Model:
    """Scores trajectories by one reward model; concurrently, from any number of event loops.

    Args:
        name: its key below `models`.
        key: its full key, for messages.
        config: its entry.

    Raises:
        ConfigError: hooks, template or API key are missing or cannot be read.
    """

    def __init__(self, name: str, key: str, config: ModelConfig) -> None:
        self.name = name
        self.config = config
        self._key = key
        hooks = _load_hooks(config.hooks, key)
        self._preprocess = getattr(hooks, PREPROCESS, None)
        self._postprocess = getattr(hooks, POSTPROCESS, None)
        self._template: str | type[BasePromptTemplate]
        if names_a_class(config.template):
            self._template = find_template(config.template, f"{key}.template", "score")
        else:
            self._template = load_template(config.template, "score", key)
        own = None if isinstance(self._template, str) else scale_of(self._template)
        self._one_at_a_time = threading.Lock()  # a tokenizer is not safe for several threads
        generative = config.kind == "generative"
        self._range = config.range or own or ((0.0, 10.0) if generative and self._postprocess is None else None)
        self._ask = self._generate if generative else self._classify
        at_once = config.max_concurrent if generative else min(config.max_concurrent, DISCRIMINATIVE_BATCHES)
        self._batches = MicroBatches(self._scores, most=config.max_batch, at_once=at_once)
        self._client = None if config.url is None else ChatClient(config, key)

    async def score(self, trajectory: Trajectory) -> float:
        """The model's score, mapped to 0 and 1 where there is a range.

        Raises:
            UnscoredError: the model gave no number.
            ConfigError: the model has no address, or a hook does not return one item for each.
        """
        return await self._batches.ask(trajectory)

    async def fitted(self, trajectory: Trajectory) -> tuple[Trajectory, bool]:
        """The trajectory as far as the model may read it, and whether it was cut."""
        config = self.config
        most = config.prompt_length, config.response_length
        if most == (None, None):
            return trajectory, False
        fitted: tuple[Trajectory, bool] = await self._in_thread(
            lambda: fit(trajectory, config.shown, self._tokenizer, most, config.keep)
        )
        return fitted

    async def _scores(self, batch: list[Trajectory]) -> list[float | BaseException]:
        """One score or exception for each; if one item may have made a batch fail, its items are sent one by one."""
        if self._client is None:
            problem = f"the model has no address: no run serves {self.name!r} here"
            raise ConfigError(f"{self._key}.url", problem, f"Give it, or agent_rl.reward.models.{self.name}")
        try:
            async with self._client as client:
                replies = await self._ask(client, await self._sent(batch))
            answers = [reply for reply in replies if not isinstance(reply, BaseException)]
            numbers = iter(await self._numbers(answers) if answers else ())
            return [
                self._unscored(reply) if isinstance(reply, BaseException) else self._checked(next(numbers))
                for reply in replies
            ]
        except FatalError:
            raise
        except Exception as error:  # noqa: BLE001 - of the endpoint or of the user's hooks: no verdict about these trajectories
            if len(batch) == 1 or not _concerns_one(error):
                return [self._unscored(error)] * len(batch)
        return [(await self._scores([trajectory]))[0] for trajectory in batch]

    async def _sent(self, batch: list[Trajectory]) -> list[Any]:
        """The input for each: a text, or chat messages."""
        if self._preprocess is not None:
            prompts, responses = zip(*(texts(trajectory, self.config.shown) for trajectory in batch), strict=True)
            tokenizer = None if self.config.tokenizer is None else self._tokenizer
            items = await self._call(self._preprocess, list(prompts), list(responses), tokenizer)
            return self._complete(items, len(batch), PREPROCESS)
        if self.config.kind == "discriminative":
            rendered: list[Any] = await self._in_thread(lambda: [self._rendered(each) for each in batch])
            return rendered
        return [self._question(trajectory) for trajectory in batch]

    async def _numbers(self, replies: list[Any]) -> list[Any]:
        if self._postprocess is not None:
            return self._complete(await self._call(self._postprocess, replies), len(replies), POSTPROCESS)
        if self.config.kind == "discriminative":
            return [numbers[-1] for numbers in replies]
        template = self._template
        return [read_score(reply) if isinstance(template, str) else _score(template, reply) for reply in replies]

    def _checked(self, number: Any) -> float | BaseException:
        """The number, mapped to the range, or the error."""
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            return self._unscored(f"no score but {str(number)[:80]!r}")
        if self._range is None:
            return float(number)
        low, high = self._range
        if not low <= number <= high:
            return self._unscored(f"the score {number:g} is not from {low:g} to {high:g}")
        return (number - low) / (high - low)

    def _unscored(self, problem: object) -> UnscoredError:
        reason = problem if isinstance(problem, UnscoredError | str) else f"{type(problem).__name__}: {problem}"
        return UnscoredError(f"reward model {self.name!r}: {reason}")

    async def _classify(self, client: ChatClient, inputs: list[Any]) -> list[Any]:
        """The numbers that a discriminative model gives for each text, in one request."""
        body: dict[str, Any] = {"model": self.config.model, "input": inputs}
        path, name = "/embeddings", "embedding"
        if self.config.engine == "vllm":
            path, name = client.url.removesuffix("/v1") + "/classify", "probs"
            body["use_activation"] = False
        return await client.post(path, body, lambda answer: _entries(answer, name, len(inputs)), _MISSING)

    async def _generate(self, client: ChatClient, questions: list[Any]) -> list[str | BaseException]:
        """The replies of a generative model, requested concurrently."""
        replies = await asyncio.gather(*(self._reply(client, each) for each in questions), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, FatalError):
                raise reply
        return replies

    async def _reply(self, client: ChatClient, question: Any) -> str:
        if reply := await reply_to(question, client, self.config):
            return reply
        raise UnscoredError("the reply has no text")

    def _question(self, trajectory: Trajectory) -> str:
        if isinstance(self._template, str):
            return fill_in(self._template, *texts(trajectory, self.config.shown))
        query, context = question_and_context(trajectory.prompt)
        answer = "\n\n".join(message["content"] for message in messages(trajectory, self.config.shown)[1])
        asks = not chat_thinks(self.config.request)
        return self._template.ask(query, [answer], context=context, enable_thinking=asks)

    def _rendered(self, trajectory: Trajectory) -> str:
        """The conversation as the model's chat template writes it, without a first BOS, which the engine adds."""
        prompt, response = messages(trajectory, self.config.shown)
        tokenizer = self._tokenizer
        text = str(tokenizer.apply_chat_template([*prompt, *response], add_generation_prompt=False, tokenize=False))
        return text.removeprefix(tokenizer.bos_token) if tokenizer.bos_token else text

    @cached_property
    def _tokenizer(self) -> Any:
        if self.config.tokenizer is None:
            problem = "the text for a discriminative model is made with its chat template"
            raise ConfigError(f"{self._key}.tokenizer", problem, f"Name its folder, or give a {PREPROCESS} in hooks")
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(self.config.tokenizer)
        except (OSError, ValueError) as error:
            problem = f"{self.config.tokenizer} cannot be loaded: {str(error).splitlines()[0]}"
            raise ConfigError(f"{self._key}.tokenizer", problem, "Correct the path") from error

    def _complete(self, items: Any, count: int, hook: str) -> list[Any]:
        if isinstance(items, str) or not isinstance(items, Sequence) or len(items) != count:
            problem = f"{hook} gave {type(items).__name__} of {len(items) if hasattr(items, '__len__') else '?'} items"
            raise ConfigError(f"{self._key}.hooks", f"{problem} for {count}", "Return a list with one for each")
        return list(items)

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a hook, which may be a coroutine function."""
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        return await self._in_thread(lambda: function(*arguments))

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        def run() -> Any:
            with self._one_at_a_time:
                return function()

        return await asyncio.to_thread(run)


def _score(template: type[Any], reply: str) -> float | str:
    """The score in a reply by a class, or the problem, for an error."""
    try:
        return float(template.read(reply).score)
    except VerdictError as error:
        return str(error)


def _concerns_one(error: Exception) -> bool:
    """Whether one trajectory may have made a batch fail: the server refuses a text, or a hook raises."""
    if isinstance(error, RemoteError):
        return error.status is not None and 400 <= error.status < 500 and error.status not in (401, 403, 404, 429)
    return not isinstance(error, UnscoredError)


def _entries(answer: Any, name: str, count: int) -> list[list[float]]:
    """The numbers of each text in an answer, in the order of the texts."""
    entries = sorted(answer["data"], key=lambda entry: entry["index"])
    numbers = [list(entry[name]) for entry in entries]
    if len(numbers) != count:
        raise ValueError(f"{len(numbers)} scores for {count} texts")
    if not all(numbers):
        raise ValueError("the answer has an empty score")
    return numbers


def _load_hooks(path: str | None, key: str) -> ModuleType | None:
    if path is None:
        return None
    separator = ":" if path.endswith(".py") else "."
    module = sys.modules[find_object(f"{path}{separator}__name__", Place(f"{key}.hooks"))]
    if not any(hasattr(module, name) for name in (PREPROCESS, POSTPROCESS)):
        raise ConfigError(f"{key}.hooks", f"{path} has neither {PREPROCESS} nor {POSTPROCESS}", "Define one of them")
    return module
