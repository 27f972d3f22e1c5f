"""Token-exact conversations with verl's token server.

Training uses exactly the tokens that the policy sampled. Token ids are appended and never re-tokenized, only
sampled tokens have mask 1, and log-probs stay aligned. A builder derives the text around turns from the chat template.

If a conversation cannot continue by appending, because the template drops thoughts or a summary replaces the history, a
new training sequence starts, in which rendered tokens have mask 0.
"""

from __future__ import annotations

import copy
import itertools
import re
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import uuid4

from agent_rl.agents.episode.format import Format, dropped_thoughts
from agent_rl.agents.episode.policy import ChatMessage, Generation, Policy, cut_at_stop, first_stop
from agent_rl.agents.policies.media import Media, new_images, without_images
from agent_rl.agents.syntaxes.json_calls import CHANNEL, without_channels
from agent_rl.errors import EngineError, FatalError, UnscoredError
from agent_rl.trajectory.trace import Tokens, TokenSequence
from agent_rl.trajectory.trace.tokens import sampled_runs


class TrainingSequence(NamedTuple):
    """One training sequence, as arrays; the response ends with a sampled token."""

    prompt_ids: array[int]
    response_ids: array[int]
    mask: array[int]
    """For each response token, 1 if it was sampled, and 0 otherwise."""
    logprobs: array[float] | None
    """The log-prob of each response token, 0 for tokens that were not sampled; None if log-probs were not requested."""
    images: list[Any]
    """The images whose placeholders are in these tokens, in order."""
    spans: Sequence[tuple[int, int, int]]
    """For each sample: its number among the samples of all conversations (from 1), the index of its first token in the
    response, and the index after its last token."""


def stored_sequences(stored: Sequence[TokenSequence]) -> list[TrainingSequence]:
    """Return the training sequences of a trajectory in a trace, without images."""
    sequences, sample = [], itertools.count(1)
    for own in stored:
        runs, numbers = sampled_runs(own["mask"]), own.get("samples", [])
        if len(numbers) != len(runs):  # an older trace, or a wrong mask, which `agent-rl certify run` reports
            numbers = [next(sample) for _ in runs]
        spans = [(number, *run) for number, run in zip(numbers, runs, strict=True)]
        prompt, response, mask = array("i", own["prompt_ids"]), array("i", own["response_ids"]), array("b", own["mask"])
        logprobs = None if own["logprobs"] is None else array("d", own["logprobs"])
        sequences.append(TrainingSequence(prompt, response, mask, logprobs, [], spans))
    return sequences


class TokenPolicy(Policy):
    """A conversation with verl's token server.

    Args:
        server: verl's token server, or an object with the same `generate`.
        builder: an object with the interface of verl's `ContinuousTokenBuilder`.
        tokenizer: the model's tokenizer.
        sampling_params: the sampling parameters for every request.
        prompt_length: maximum number of tokens in the prompt.
        response_length: maximum number of tokens in a training sequence's response.
        engine_stops: whether the engine supports stop strings.
        format: the agent's format, which determines the special tokens that end a turn and whether the turn's text
            contains special tokens; None means that only the model's configuration determines this.
        media: the prompt's images, videos and audio.
        drop_thoughts: whether to start a new training sequence where the template drops thoughts from earlier turns.

    Attributes:
        server: the token server.
        prompt_ids: the prompt's token ids.
        ids: prompt and response token ids so far.
        mask, logprobs: the current values of these fields of `TrainingSequence`.
        extra_fields: the weight versions that the server reported, in verl's form.
        preempted: how often the engine preempted the requests; -1 means unknown.
    """

    def __init__(
        self,
        server: Any,
        builder: Any,
        tokenizer: Any,
        sampling_params: dict[str, Any],
        *,
        prompt_length: int,
        response_length: int,
        engine_stops: bool,
        format: Format | None = None,
        drop_thoughts: bool = False,
        media: Media | None = None,
    ) -> None:
        self.server, self._builder, self._tokenizer = server, builder, tokenizer
        self.sampling = _with_stops(sampling_params, tokenizer, format.stop_tokens if format else ())
        self._special_tokens = format is not None and format.special_tokens
        self._prompt_length, self._response_length = prompt_length, response_length
        self._turn_ends: frozenset[int] | None = getattr(builder, "turn_ends", None)  # None: verl's builder
        channel = tokenizer.convert_tokens_to_ids(CHANNEL)
        self._channel = None if channel == tokenizer.unk_token_id else channel
        self._engine_stops, self._drop_thoughts = engine_stops, drop_thoughts
        self.media = media or Media()
        self.extra_fields: dict[str, Any] = {}
        self.preempted = -1
        self._siblings: list[TokenPolicy] = []
        self._samples = itertools.count(1)
        self._clear()

    def _clear(self) -> None:
        self._request_id = uuid4().hex
        self._messages: list[ChatMessage] = []
        self._tools: Sequence[dict[str, Any]] = []
        self._earlier: list[TrainingSequence] = []
        self.earlier_tokens: list[int] = []
        self.images: list[Any] = []
        self._answered_images = 0  # number of images before the last sampled token
        self._last_turn = 0  # index in the mask at which the last turn starts
        self.prompt_tokens = 0
        self._start([])

    @property
    def response_tokens(self) -> int:  # type: ignore[override]
        """Number of sampled and observation tokens in all training sequences."""
        return sum(self.earlier_tokens) + len(self.mask) + sum(each.response_tokens for each in self._siblings)

    @property
    def longest_tokens(self) -> int:
        """See `Policy.longest_tokens`."""
        return max(len(self.mask), *self.earlier_tokens, 0, *(each.longest_tokens for each in self._siblings))

    @property
    def context_tokens(self) -> int:
        """Number of tokens before the next turn."""
        return len(self.ids)

    def sibling(self, *, is_trained: bool = True) -> TokenPolicy:
        """Return a fresh conversation; if it is trained on, its sequences are added after this conversation's."""
        other = copy.copy(self)
        other._siblings = []
        other._clear()
        if is_trained:
            self._siblings.append(other)
        else:
            other.extra_fields = {}  # a conversation not trained on records its own weight versions
            other._samples = itertools.count(1)
        return other

    def count_tokens(self, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]] | None = None) -> int:
        """Use the builder to count the tokens before the next turn; see `Policy.count_tokens`."""
        if tools is not None:
            return len(self.media.render(self._builder, list(messages), tools or None, self.media.images_of(messages)))
        updated = [*self._messages, *messages]
        merged = self._builder.merge_context_tokens(self._messages, updated, self.ids, tools=self._tools or None)
        return len(merged.token_ids)

    def as_text(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Return the messages with a space inside each special token, so that such a token is encoded as text."""
        control = _control_tokens(self._tokenizer)
        return [
            {**message, "content": control.sub(lambda match: f"{match[0][0]} {match[0][1:]}", message["content"])}
            for message in messages
        ]

    def forget_turn(self) -> None:
        """Exclude the last turn from training by setting the mask of its tokens to 0."""
        del self._spans[-1:]
        self.mask[self._last_turn :] = array("b", bytes(len(self.mask) - self._last_turn))

    async def begin(self, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]]) -> None:
        """Render the prompt; a second call starts a new training sequence.

        Raises:
            UnscoredError: the prompt is longer than `data.max_prompt_length`, or leaves no token for an answer.
        """
        images = self.media.images_of(messages)
        ids = self.media.render(self._builder, list(messages), tools or None, images)
        if not self.prompt_ids and len(ids) > self._prompt_length:
            raise UnscoredError(
                f"the prompt has {len(ids)} tokens with the agent's instructions, more than "
                f"data.max_prompt_length={self._prompt_length}: raise this limit, or shorten the row or "
                "the agent's instructions"
            )
        if not self._restart(ids, images):
            raise UnscoredError(f"the continued conversation has {len(ids)} tokens, which leaves none for an answer")
        self._messages, self._tools = list(messages), tools

    async def generate(self, stop: Sequence[str] = (), *, keep_stop: bool = False) -> Generation:
        """Sample one turn within what is left of `data.max_response_length`."""
        left = self._response_length - self.reserve - len(self.mask)
        left = left if self.most is None else max(1, min(left, self.most))
        self._last_turn = len(self.mask)
        params = {**self.sampling, "max_new_tokens": left}
        if stop and self._engine_stops:
            params["stop"] = list(stop)
        try:
            output = await self.server.generate(
                request_id=self._request_id,
                prompt_ids=self.ids.tolist(),
                sampling_params=params,
                **self.media.request(self.images),
            )
        except FatalError:
            raise
        except Exception as error:  # an error from the engine or Ray is not the policy's fault
            raise EngineError(f"{type(error).__name__}: {error}") from error
        self._note(output)
        sampled, logprobs = output.token_ids, output.log_probs
        if output.stop_reason in ("abort", "aborted"):
            raise EngineError("the engine aborted the request")
        if not sampled or len(sampled) > left:
            raise EngineError(
                f"the engine returned {len(sampled)} tokens where 1 to {left} were requested "
                f"(stop reason {output.stop_reason!r})"
            )
        if self.logprobs is not None and (logprobs is None or len(logprobs) != len(sampled)):
            raise EngineError(f"{len(sampled)} tokens came with {len(logprobs or ())} log-probs")
        turn_ids, text, stopped = self._cut(sampled, stop, keep_stop)
        self._append(turn_ids, 1, logprobs)
        self._spans.append((next(self._samples), len(self.mask) - len(turn_ids), len(self.mask)))
        finished = stopped is not None or output.stop_reason != "length"
        if self._turn_ends is None and (finished or self.reserve) and len(self.mask) < self._response_length:
            self._append(self._missing_end(turn_ids[-1], stopped is not None or not finished))
        self._messages.append({"role": "assistant", "content": text})
        self._answered_images = len(self.images)
        return Generation(text, len(turn_ids), "stop" if finished else "length", stop=stopped)

    async def extend(self, messages: Sequence[ChatMessage]) -> bool:
        """Append the environment's messages with the template's text around them."""
        updated, images = [*self._messages, *messages], new_images(self._builder, messages)
        if self._drop_thoughts:
            ids = self.media.render(self._builder, updated, self._tools or None, [*self.images, *images])
            if dropped_thoughts(updated, self._tokenizer.decode(ids)):
                if not self._restart(ids, [*self.images, *images]):
                    return False
                self._messages = updated
                return True
        result = self._builder.merge_context_tokens(self._messages, updated, self.ids, tools=self._tools or None)
        removed = result.removed_prefix_token_count
        added = result.token_ids[len(self.ids) - removed :]
        if len(self.mask) - removed + len(added) >= self._response_length - self.reserve:
            return False
        for values in (self.ids, self.mask, self.logprobs):
            if values is not None and removed:
                del values[-removed:]
        self._append(added)
        self._messages = updated
        self.images += images
        return True

    def sequences(self) -> list[TrainingSequence]:
        """Return the training sequences; a conversation that was never restarted has one sequence.

        Raises:
            UnscoredError: no token was sampled.
        """
        if not (sequences := self._sequences()):
            raise UnscoredError("no token was sampled")
        return sequences

    def _sequences(self) -> list[TrainingSequence]:
        last = self._sequence()
        own = [*self._earlier, last] if last is not None else self._earlier
        return [*own, *(sequence for other in self._siblings for sequence in other._sequences())]

    def record(self) -> Tokens:
        """Return the conversation and its training sequences as JSON data, for the trace.

        The messages have placeholders for images, and are omitted if there are videos or audio.
        """
        sequences = [
            TokenSequence(
                prompt_ids=list(each.prompt_ids),
                response_ids=list(each.response_ids),
                mask=list(each.mask),
                logprobs=None if each.logprobs is None else list(each.logprobs),
                images=len(each.images),
                samples=[number for number, first, last in each.spans if any(each.mask[first:last])],
            )
            for each in self.sequences()
        ]
        return Tokens(messages=without_images(self._messages), tools=list(self._tools), sequences=sequences)

    def _sequence(self) -> TrainingSequence | None:
        end = len(self.mask)
        while end and not self.mask[end - 1]:
            end -= 1
        if not end:
            return None
        start = len(self.prompt_ids)
        logprobs = None if self.logprobs is None else self.logprobs[:end]
        images = self.images[: self._answered_images]
        ids = self.ids[start : start + end]
        return TrainingSequence(self.prompt_ids, ids, self.mask[:end], logprobs, images, tuple(self._spans))

    def _restart(self, ids: list[int], images: list[Any]) -> bool:
        """Continue from these ids in a new training sequence; if they do not fit, change nothing and return False.

        Tokens beyond the prompt's limit become part of the response, with mask 0.
        """
        prompt, history = ids[: self._prompt_length], ids[self._prompt_length :]
        if len(history) >= self._response_length - self.reserve:
            return False
        if (sequence := self._sequence()) is not None:
            self._earlier.append(sequence)
        self.earlier_tokens.append(len(self.mask))
        self.prompt_tokens = self.prompt_tokens or len(ids)
        self.images = images
        self._start(prompt)
        self._append(history)
        return True

    def _start(self, prompt: list[int]) -> None:
        """Create the arrays for a training sequence: 32-bit ids, an 8-bit mask, and log-probs as 64-bit floats."""
        self.prompt_ids, self.ids, self.mask = array("i", prompt), array("i", prompt), array("b")
        self.logprobs = array("d") if self.sampling.get("logprobs") else None
        self._spans: list[tuple[int, int, int]] = []

    def _append(self, ids: Sequence[int], sampled: int = 0, logprobs: Iterable[float] = itertools.repeat(0.0)) -> None:
        self.ids.extend(ids)
        self.mask.extend(itertools.repeat(sampled, len(ids)))
        if self.logprobs is not None:
            self.logprobs.extend(itertools.islice(logprobs, len(ids)))

    def _cut(self, sampled: list[int], stop: Sequence[str], keep_stop: bool) -> tuple[list[int], str, str | None]:
        """Return the tokens up to the end of the first stop string, their text, and the stop string, if any.

        If the stop string is kept, a sampled end-of-turn token after it is kept too.
        """
        text = self._text(sampled)
        if (first := first_stop(text, stop)) is None:
            return sampled, text, None
        low, high = 1, len(sampled)  # binary search works, because every longer prefix also contains the stop string
        while low < high:
            middle = (low + high) // 2
            prefix = self._text(sampled[:middle])
            low, high = (low, middle) if any(s in prefix for s in stop) else (middle + 1, high)
        if keep_stop and self._ends_turn(*sampled[low : low + 1]):
            low += 1
        return sampled[:low], cut_at_stop(text, stop, keep_stop), first

    def _text(self, sampled: list[int]) -> str:
        if not self._special_tokens:
            if self._channel is not None and self._channel in sampled:
                return without_channels(self._tokenizer.decode(sampled))
            return str(self._tokenizer.decode(sampled, skip_special_tokens=True))
        return str(self._tokenizer.decode(sampled[:-1] if self._ends_turn(sampled[-1]) else sampled))

    def _ends_turn(self, token: int | None = None) -> bool:
        ends = {self._im_end()} if self._turn_ends is None else self._turn_ends
        return token is not None and (token == self._tokenizer.eos_token_id or token in ends)

    def _im_end(self) -> int | None:
        """The token with which the template ends a turn, if the builder provides it."""
        return getattr(self._builder, "_im_end_id", None)

    def _missing_end(self, last: int, ended: bool) -> list[int]:
        """Return the end-of-turn token if the turn lacks this token, because the template's next turn needs it.

        The builder's token has priority, because a tokenizer's eos may differ, and a model may stop at several tokens.
        """
        end = self._im_end()
        if end is None and ended:
            end = self._tokenizer.eos_token_id
        return [] if end is None or last == end else [end]

    def _note(self, output: Any) -> None:
        """Store the weight versions and the number of preemptions that verl reports with an answer."""
        known = dict(self.extra_fields)
        self.extra_fields.update({} if known else output.extra_fields)
        for name, outer in (("min_global_steps", min), ("max_global_steps", max)):  # conversations run concurrently
            steps = [each for each in (known.get(name), output.extra_fields.get(name)) if each is not None]
            if steps:
                self.extra_fields[name] = outer(steps)
        if output.num_preempted is not None:
            self.preempted = max(self.preempted, 0) + output.num_preempted


@lru_cache(maxsize=8)
def _control_tokens(tokenizer: Any) -> re.Pattern[str]:
    """Return a pattern that matches any special token of the tokenizer."""
    added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    texts = sorted({*tokenizer.all_special_tokens, *added}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts)) or r"(?!)")


def _with_stops(sampling_params: dict[str, Any], tokenizer: Any, stop_tokens: Sequence[str]) -> dict[str, Any]:
    """Return the sampling parameters with the ids of the stop tokens, except tokens that the vocabulary lacks."""
    ids = [tokenizer.convert_tokens_to_ids(token) for token in stop_tokens]
    stop_ids = {token for token in ids if token is not None and token >= 0 and token != tokenizer.unk_token_id}
    if not stop_ids:
        return sampling_params
    return {**sampling_params, "stop_token_ids": sorted({*(sampling_params.get("stop_token_ids") or ()), *stop_ids})}
