"""Plays scripted turns as tokens, to create example episodes for training and baselines for a trained policy.

The conversation is the same as in training (`agents.policies.token_policy`); only the sampler is replaced. The tokens
and the mask of a scripted episode are therefore the same as for a model that writes the same turns.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from agent_rl.agents.episode.budget import UNLIMITED
from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.policy import ChatMessage
from agent_rl.agents.policies.token_policy import TokenPolicy
from agent_rl.agents.policies.tokens import ChatTokenizer, Sampled

Script = Generator[str, str, None]
"""Yields the turns of one episode, and receives the environment's answer to each turn."""


class ScriptedTokens(TokenPolicy):
    """A conversation whose turns a script writes.

    Args:
        script: this episode's script, which must yield every turn, including the last.
        chat: the model's tokenizer.
        response_length: maximum number of tokens after the prompt.
        format: the agent's format.
    """

    def __init__(self, script: Script, chat: ChatTokenizer, response_length: int, format: Format) -> None:
        self._sampler = _Sampler(script, chat.tokenizer)
        super().__init__(
            self._sampler,
            chat.builder,
            chat.tokenizer,
            {},
            prompt_length=UNLIMITED,
            response_length=response_length,
            engine_stops=False,
            format=format,
        )

    async def extend(self, messages: Sequence[ChatMessage]) -> bool:
        """Append the environment's messages, and keep their text for the script."""
        self._sampler.observation = "\n".join(str(message["content"]) for message in messages)
        return await super().extend(messages)


class _Sampler:
    """A token server that returns the turns of the script."""

    def __init__(self, script: Script, tokenizer: Any) -> None:
        self._script, self._tokenizer = script, tokenizer
        self.observation: str | None = None

    async def generate(self, *, sampling_params: dict[str, Any], **_: Any) -> Sampled:
        """Return the next turn with its end token; a turn over the limit is cut, with the stop reason `length`."""
        turn = next(self._script) if self.observation is None else self._script.send(self.observation)
        ids = [*self._tokenizer.encode(turn, add_special_tokens=False), self._tokenizer.eos_token_id]
        most = sampling_params["max_new_tokens"]
        return Sampled(ids[:most], None, "stop" if len(ids) <= most else "length")
