r"""`Model` sends requests to one reward model at one address, and converts its replies to numbers.

A *discriminative* model (Bradley-Terry) reads a conversation and returns a number. Like verl, `Model` uses SGLang's
`/v1/embeddings` or vLLM's `/classify` for such a model. A *generative* model reads a question in a chat and replies
with text that contains a number. Each trajectory is a separate request, because engines batch concurrent requests
themselves. A `hooks` file can build the request and read the reply instead; its functions receive lists of length 1:

    def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):   # lists of strings, the model's tokenizer or None
        return [f"{prompt}\n{response}" for prompt, response in zip(text_prompts, text_responses)]

    def rm_postprocess(results):   # discriminative: a list of lists of numbers; generative: a list of strings
        return [float(numbers[0]) for numbers in results]

Either function may be a coroutine function. A trajectory without a usable score is unscored.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from numbers import Real
from types import ModuleType
from typing import Any, Literal

from pydantic import Field, model_validator

from agent_rl.errors import ConfigError, FatalError, UnscoredError
from agent_rl.remote import ChatClient, EndpointConfig
from agent_rl.remote.http import SERVER_URL
from agent_rl.rewards.judge.kinds import chat_thinks, find_template, names_a_class, scale_of
from agent_rl.rewards.judge.prompt import question_and_context, read_file
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate
from agent_rl.rewards.models.conversation import (
    ChatMessage,
    Keep,
    Shown,
    fill_in,
    fit,
    messages,
    read_score,
    text_of,
)
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.trajectory import Message, Trajectory

Messages = list[ChatMessage]
PREPROCESS, POSTPROCESS = "rm_preprocess", "rm_postprocess"
_MISSING = "scores: is the model a classifier?"


class ModelConfig(EndpointConfig):
    """One entry of `models`: the model, its address and its limits."""

    url: str | None = Field(default=None, pattern=SERVER_URL, examples=["http://localhost:8000"])  # type: ignore[assignment]
    """The server's address, with or without `/v1`; if null, use the model of this name in `agent_rl.reward.models`."""
    model: str = "default"
    timeout_s: float = Field(default=120.0, gt=0)
    total_s: float = Field(default=300.0, gt=0)
    max_concurrent: int = Field(default=64, ge=1)
    kind: Literal["discriminative", "generative"] = "discriminative"
    engine: Literal["sglang", "vllm"] = "sglang"
    """The engine that serves a discriminative model."""
    tokenizer: str | None = None
    """The model's tokenizer: a folder or a name on the Hub. The tokenizer's chat template renders a discriminative
    model's text."""
    weight: float = 1.0
    """Weight of the model's score; if 0, the score is logged but does not change the component."""
    hooks: str | None = None
    """`path/to/file.py` or `package.module` that defines `rm_preprocess`, `rm_postprocess`, or both."""
    template: str | None = None
    """The question to a generative model: a text file in which `{mark}` surrounds `{prompt}` and `{response}`, or the
    class `file.py:Name` that wrote its training prompts (see `agent_rl.rewards.judge.kinds`). Null means a built-in
    question."""
    shown: Shown = "conversation"
    """What the model sees after the prompt: all turns with their observations, or only the final answer."""
    temperature: float = Field(default=0.0, ge=0)
    max_tokens: int = Field(default=512, ge=1)
    """Maximum number of tokens in a generative model's reply, including its thoughts."""
    request: dict[str, Any] = Field(default_factory=dict)
    """Additional keys of the request to a generative model, for example `logit_bias` or `chat_template_kwargs`."""
    prompt_length: int | None = Field(default=None, ge=1)
    """Maximum number of prompt tokens for the model; a longer prompt is cut and logged. Null means unlimited."""
    response_length: int | None = Field(default=None, ge=1)
    """Maximum number of response tokens for the model; a longer response is cut and logged. Null means unlimited."""
    keep: Keep = "tail"
    """Which part of a long prompt or response is kept: its start (`head`) or its end (`tail`)."""
    range: tuple[float, float] | None = None
    """Bounds of a score, which are mapped to 0 and 1; a score outside the bounds is an error. Null means the bounds in
    the prompt template; if it has none, 0 to 10 for a generative model without `rm_postprocess`, and none otherwise."""

    @model_validator(mode="after")
    def _check_settings(self) -> ModelConfig:
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError("range: the first number must be less than the second number; write [lowest, highest]")
        if self.tokenizer is None and self.url is not None and (self.prompt_length or self.response_length):
            raise ValueError("prompt_length and response_length are counted by the model's tokenizer; set tokenizer")
        return self


class Model:
    """Scores trajectories with one reward model. Several event loops may use a model concurrently.

    Args:
        name: the model's key in `models`.
        key: the model's full configuration key, used in error messages.
        config: the model's settings.

    Raises:
        ConfigError: the hooks, the template or the API key is missing or cannot be read.
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
            file, self._template = read_file(config.template, "score", f"{key}.template")
            if "{response}" not in self._template:
                raise ConfigError(f"{key}.template", f"{file} does not contain {{response}}", "Add this placeholder")
        scale = None if isinstance(self._template, str) else scale_of(self._template)
        self._one_at_a_time = threading.Lock()  # tokenizers are not thread-safe
        generative = config.kind == "generative"
        self._range = config.range or scale or ((0.0, 10.0) if generative and self._postprocess is None else None)
        self._client = None if config.url is None else ChatClient(config, key)

    async def reach(self) -> None:
        """Check that the endpoint serves the model. A model without an address is not checked.

        Raises:
            ConfigError: the endpoint does not answer, or rejects the key or the model.
        """
        if self._client is not None:
            await self._client.check()

    async def score(self, trajectory: Trajectory) -> tuple[float, bool]:
        """Return the score, scaled to 0 to 1 if it has bounds, and whether the model read a shortened conversation.

        Raises:
            UnscoredError: the model returned no usable score.
            ConfigError: the model has no address, or a hook does not return exactly one item.
        """
        if self._client is None:
            problem = f"the {self.name!r} model has no address, because no training run serves it"
            raise ConfigError(f"{self._key}.url", problem, f"Set the url, or agent_rl.reward.models.{self.name}")
        config, conversation = self.config, messages(trajectory, self.config.shown)
        try:
            prompt, response = conversation
            if config.prompt_length or config.response_length:
                prompt, response = await self._in_thread(lambda: self._cut(*conversation))
            async with self._client as client:
                question = await self._input(prompt, response)
                generates = config.kind == "generative"
                reply = await (self._generate(client, question) if generates else self._classify(client, question))
            return self._map(await self._number(reply)), (prompt, response) != conversation
        except FatalError:
            raise
        except Exception as error:  # the cause is the endpoint or the user's hooks, not the trajectory
            reason = str(error) if isinstance(error, UnscoredError) else f"{type(error).__name__}: {error}"
            raise UnscoredError(f"reward model {self.name!r}: {reason}") from error

    def _cut(self, prompt: Messages, response: Messages) -> tuple[Messages, Messages]:
        """Cut the prompt and the response to their limits, and drop prompt messages that become empty."""
        config, tokenizer = self.config, self._tokenizer
        pairs = zip(fit(prompt, config.prompt_length, config.keep, tokenizer), prompt, strict=True)
        rest = [message for message, uncut in pairs if message["content"] or not uncut["content"]]
        return rest, fit(response, config.response_length, config.keep, tokenizer)

    async def _input(self, prompt: Messages, response: Messages) -> Any:
        """Build the model's input: a string, or chat messages."""
        config = self.config
        if self._preprocess is not None:
            tokenizer = None if config.tokenizer is None else self._tokenizer
            return await self._hook(self._preprocess, PREPROCESS, [text_of(prompt)], [text_of(response)], tokenizer)
        if config.kind == "discriminative":
            return await self._in_thread(lambda: self._render([*prompt, *response]))
        if isinstance(self._template, str):
            return fill_in(self._template, text_of(prompt), text_of(response))
        query, context = question_and_context([Message.from_chat(message) for message in prompt])
        answer = "\n\n".join(message["content"] for message in response)
        thinking = not chat_thinks(config.request)
        return self._template.ask(query, [answer], context=context, enable_thinking=thinking)

    async def _number(self, reply: Any) -> Any:
        if self._postprocess is not None:
            return await self._hook(self._postprocess, POSTPROCESS, [reply])
        if self.config.kind == "discriminative":
            return reply[-1]
        return read_score(reply) if isinstance(self._template, str) else self._template.read(reply).score  # type: ignore[attr-defined]

    def _map(self, number: Any) -> float:
        """Check that a score is a number within the bounds, and scale it to the range 0 to 1 if there are bounds."""
        if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number):
            raise UnscoredError(f"expected a score, got {str(number)[:80]!r}")
        value = float(number)  # a hook may return numpy's numbers
        if self._range is None:
            return value
        low, high = self._range
        if not low <= value <= high:
            raise UnscoredError(f"the score {value:g} is not between {low:g} and {high:g}")
        return (value - low) / (high - low)

    async def _classify(self, client: ChatClient, text: Any) -> Any:
        """Send text to a discriminative model, and return the model's numbers."""
        body: dict[str, Any] = {"model": self.config.model, "input": [text]}
        path, name = "/embeddings", "embedding"
        if self.config.engine == "vllm":
            path, name = client.url.removesuffix("/v1") + "/classify", "probs"
            body["use_activation"] = False
        return await client.post(path, body, lambda answer: _numbers(answer, name), _MISSING)

    async def _generate(self, client: ChatClient, question: Any) -> str:
        """Send text or messages to a generative model, and return the model's reply."""
        config = self.config
        conversation = [{"role": "user", "content": question}] if isinstance(question, str) else question
        sampling = {"temperature": config.temperature, "max_tokens": config.max_tokens, **config.request}
        reply = await client.chat({"messages": conversation, **sampling})
        if not reply.text:
            raise UnscoredError("the reply has no text")
        return reply.text

    def _render(self, conversation: Messages) -> str:
        """Render the conversation with the model's chat template, without the leading BOS, which the engine adds."""
        tokenizer = self._tokenizer
        text = str(tokenizer.apply_chat_template(conversation, add_generation_prompt=False, tokenize=False))
        return text.removeprefix(tokenizer.bos_token) if tokenizer.bos_token else text

    @cached_property
    def _tokenizer(self) -> Any:
        if self.config.tokenizer is None:
            problem = "the model's input is rendered by its tokenizer's chat template, but no tokenizer is set"
            raise ConfigError(f"{self._key}.tokenizer", problem, f"Set the tokenizer, or define {PREPROCESS} in hooks")
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(self.config.tokenizer)
        except (OSError, ValueError) as error:
            problem = f"{self.config.tokenizer} cannot be loaded: {str(error).splitlines()[0]}"
            raise ConfigError(f"{self._key}.tokenizer", problem, "Correct the path") from error

    async def _hook(self, function: Callable[..., Any], name: str, *arguments: Any) -> Any:
        """Call a hook, which may be a coroutine function, and return the single item of the list that it returns.

        Raises:
            ConfigError: the hook does not return a list of length 1.
        """
        if inspect.iscoroutinefunction(function):
            items = await function(*arguments)
        else:
            items = await self._in_thread(lambda: function(*arguments))
        if isinstance(items, str) or not isinstance(items, Sequence) or len(items) != 1:
            length = f" of length {len(items)}" if hasattr(items, "__len__") else ""
            problem = f"{name} returned {type(items).__name__}{length} for 1 trajectory"
            raise ConfigError(f"{self._key}.hooks", problem, "Return a list with one item per trajectory")
        return items[0]

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        def run() -> Any:
            with self._one_at_a_time:
                return function()

        return await asyncio.to_thread(run)


def _numbers(answer: Any, name: str) -> list[float]:
    """Extract the numbers from an endpoint's response to one text."""
    (entry,) = answer["data"]
    if not entry[name]:
        raise ValueError(f"the list {name!r} in the answer is empty")
    return list(entry[name])


def _load_hooks(path: str | None, key: str) -> ModuleType | None:
    if path is None:
        return None
    separator = ":" if path.endswith(".py") else "."
    module = sys.modules[find_object(f"{path}{separator}__name__", Place(f"{key}.hooks"))]
    if not any(hasattr(module, name) for name in (PREPROCESS, POSTPROCESS)):
        raise ConfigError(
            f"{key}.hooks", f"{path} defines neither {PREPROCESS} nor {POSTPROCESS}", "Define one of them"
        )
    return module
