"""Rejection sampling: the best trajectories of a trace as data for supervised fine-tuning, in the form that verl reads.

verl's `MultiTurnSFTDataset` renders each message by itself, trains on all assistant messages, and has no way to give
tools of different arguments. So a row has messages of the roles system, user and assistant only, with what the chat
template made of the tools and their results written out. That needs the tokenizer; conversations without tools in their
template, as of the ReAct agent, need none. What cannot be written so is left out and counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.exports.selection import split_of
from agent_rl.trace import Tokens
from agent_rl.trajectory import StopReason, Trajectory

__all__ = ["Renderer", "SftChoice", "sft_rows", "write_sft"]

Chat = list[dict[str, str]]
_MARK = "\u2063agent_rl\u2063"
"""A text that no template has."""
_PLAIN = ("system", "user", "assistant")
CUT = (StopReason.MAX_TOKENS, StopReason.ENGINE_ERROR, StopReason.ERROR)
"""Ends in the middle of a turn."""


@dataclass
class SftChoice:
    """Which of the trajectories are taken; then `left_out` says how many were not, by reason.

    Attributes:
        min_reward: least reward; None: any score.
        split: the row's split; None: any.
        trained: ids of trajectories that were trained on; of rows that name no split, only these are taken.
        per_prompt: most trajectories of a prompt in the whole trace, the best; None: no limit.
    """

    min_reward: float | None = None
    split: str | None = "train"
    trained: Collection[str] = ()
    per_prompt: int | None = None
    left_out: Counter[str] = field(default_factory=Counter)

    def of(self, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
        """The chosen ones in their order; each conversation once."""
        known: set[str] = set()
        prompts: Counter[str] = Counter()
        found = list(trajectories)
        chosen: set[int] = set()
        best_first = sorted(found, key=lambda each: 0.0 if each.score is None else -each.score.total)
        for each in best_first:  # of equal rewards the first
            prompt = json.dumps([[message.role, message.content] for message in each.prompt])
            talk = json.dumps([prompt, [turn.text for turn in each.turns]])
            reason = self._refusal(each)
            if reason is None and talk in known:
                reason = "the same conversation again"
            if reason is None and prompts[prompt] == self.per_prompt:
                reason = "more of the same prompt"
            if reason is None:
                known.add(talk)
                prompts[prompt] += 1
                chosen.add(id(each))
            else:
                self.left_out[reason] += 1
        return [each for each in found if id(each) in chosen]

    def _refusal(self, trajectory: Trajectory) -> str | None:
        """Why a trajectory is not taken, whatever the others are."""
        split = split_of(trajectory)
        if self.split is not None and (trajectory.id not in self.trained if split is None else split != self.split):
            return f"not of the split {self.split}"
        if trajectory.score is None or trajectory.error is not None:
            return "no score"
        if trajectory.stop_reason in CUT or not trajectory.turns:
            return "cut off"
        too_little = self.min_reward is not None and trajectory.score.total < self.min_reward
        return "reward below the threshold" if too_little else None


class Renderer:
    """A chat template that writes conversations with tools as plain messages.

    Args:
        tokenizer: of transformers.
        options: further variables of the template (`data.apply_chat_template_kwargs`).
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Any] | None = None) -> None:
        self._tokenizer, self._options = tokenizer, dict(options or {})

    def plain(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> Chat | None:
        """Messages without tools that the template renders as the same text; None: there are none.

        The text of a message is what stands in the given rendering where a mark stands in one without tools.
        """
        said = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
        if not said or any(not isinstance(message["content"], str) for message in messages):
            return None
        whole = self._render(messages, tools)
        found = self._prompt(messages[: said[0]], tools)
        if found is None:
            return None
        for at, end in zip(said, [*said[1:], len(messages)], strict=True):
            found.append({"role": "assistant", "content": messages[at]["content"]})
            if at + 1 < end:
                before, after = self._render(messages[: at + 1], tools), self._render(messages[:end], tools)
                if not after.startswith(before):
                    return None
                shown = self._around(found, "user")
                text = shown and _between(after.removeprefix(before), *shown)
                if text is None:
                    return None
                found.append({"role": "user", "content": text})
        return found if self._render(found) == whole else None

    def _prompt(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> Chat | None:
        """The prompt with the tools in its system message."""
        rest = [{"role": each["role"], "content": each["content"]} for each in messages]
        rest = rest[1:] if rest and rest[0]["role"] == "system" else rest
        marked = self._render([{"role": "system", "content": _MARK}, *rest])
        if _MARK not in marked:
            return None
        before, _, after = marked.partition(_MARK)
        text = _between(self._render(messages, tools), before, after)
        return None if text is None else [{"role": "system", "content": text}, *rest]

    def _around(self, messages: Chat, role: str) -> tuple[str, str] | None:
        """What the template puts before and after the text of a next message."""
        before, after = self._render(messages), self._render([*messages, {"role": role, "content": _MARK}])
        if not after.startswith(before) or _MARK not in after:
            return None
        head, _, tail = after.removeprefix(before).partition(_MARK)
        return head, tail

    def _render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                list(messages), tools=list(tools) or None, tokenize=False, add_generation_prompt=False, **self._options
            )
        )


def sft_rows(
    trajectories: Iterable[Trajectory],
    tokens_of: Callable[[str], Tokens | None],
    choice: SftChoice,
    renderer: Callable[[], Renderer],
) -> Iterator[dict[str, Any]]:
    """A row for each chosen trajectory: messages, and id, reward, data source, step.

    Args:
        trajectories: of a trace.
        tokens_of: finds the tokens of one by its id.
        choice: is filled with what was left out.
        renderer: is called when a conversation has tools in its template.

    Raises:
        ConfigError: none of the trajectories has tokens.
    """
    chosen, found = choice.of(trajectories), False
    for each in chosen:
        tokens = tokens_of(each.id)
        found = found or tokens is not None
        row = _row(each, tokens, renderer)
        if isinstance(row, str):
            choice.left_out[row] += 1
        else:
            yield row
    if chosen and not found:
        remedy = "Write it with agent_rl.trace.tokens=true, as every recipe does"
        raise ConfigError("sft", "the trace has no conversations: they are kept with the tokens", remedy)


def _row(trajectory: Trajectory, tokens: Tokens | None, renderer: Callable[[], Renderer]) -> dict[str, Any] | str:
    """The row of a trajectory, or why there is none."""
    messages = list(tokens["messages"]) if tokens else []
    while messages and messages[-1]["role"] != "assistant":  # an observation that was not answered
        messages.pop()
    if not tokens or not messages:
        return "without tokens"
    if any(not isinstance(message["content"], str) for message in messages):
        return "with images, videos or audios"
    if tokens["tools"] or any(message["role"] not in _PLAIN for message in messages):
        chat = renderer().plain(messages, tokens["tools"])
    else:
        chat = [{"role": message["role"], "content": message["content"]} for message in messages]
    if chat is None:
        return "the chat template has no plain form of it"
    return {
        "messages": chat,
        "id": trajectory.id,
        "reward": trajectory.score.total if trajectory.score else None,
        "data_source": trajectory.data_source,
        "step": trajectory.info.get("step"),
    }


def write_sft(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Write the rows as parquet; returns their number."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    columns = {"messages": pa.list_(message), "id": pa.string(), "reward": pa.float64(), "data_source": pa.string(),
               "step": pa.int64()}  # fmt: skip
    table = pa.Table.from_pylist(list(rows), pa.schema(columns))
    parquet.write_table(table, path)
    return int(table.num_rows)


def _between(text: str, before: str, after: str) -> str | None:
    fits = text.startswith(before) and text.endswith(after) and len(text) >= len(before) + len(after)
    return text[len(before) : len(text) - len(after)] if fits else None
