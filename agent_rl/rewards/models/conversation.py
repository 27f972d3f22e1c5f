"""Turns a trajectory into the input of a reward model, and reads the score in a generative model's reply.

A trajectory becomes chat messages, two strings, or a question. The instructions of the agent loop and the descriptions
of the tools are included if the trajectory's prompt contains them. Observations (tool results, a user's messages) have
the `user` role, because few reward models' chat templates support other roles. A server rejects a conversation that is
longer than the model's context, so `fit` cuts it to a number of tokens, counted by the model's tokenizer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Literal

from agent_rl.rewards.judge.reply import THOUGHTS_END
from agent_rl.tools.truncation import encodable
from agent_rl.trajectory import Trajectory

ChatMessage = dict[str, str]
Shown = Literal["conversation", "answer"]
Keep = Literal["head", "tail"]


def messages(trajectory: Trajectory, shown: Shown) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """Return the prompt and the response, which is all turns or only the final answer (empty if missing)."""
    prompt = [{"role": message.role, "content": encodable(message.content)} for message in trajectory.prompt]
    if shown == "answer":
        return prompt, [{"role": "assistant", "content": encodable(trajectory.answer or "")}]
    response: list[ChatMessage] = []
    for turn in trajectory.turns:
        response.append({"role": "assistant", "content": encodable(turn.text)})
        if turn.observation is not None:
            response.append({"role": "user", "content": encodable(turn.observation)})
    return prompt, response


def text_of(conversation: Sequence[ChatMessage]) -> str:
    """Join messages into one string. If there are several messages, each message starts with its role."""
    if len(conversation) == 1:
        return conversation[0]["content"]
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in conversation)


def fit(conversation: Sequence[ChatMessage], limit: int | None, keep: Keep, tokenizer: Any) -> list[ChatMessage]:
    """Cut messages to a total number of tokens. Messages beyond the limit become empty, so that roles still alternate.

    Args:
        conversation: the messages, which are not changed.
        limit: the maximum number of tokens in all messages together; None means unlimited.
        keep: which tokens to keep: the first or the last.
        tokenizer: the model's tokenizer, which must be a fast tokenizer.
    """
    size = sum(len(message["content"].encode("utf-8", "replace")) for message in conversation)
    if limit is None or size <= limit:  # each token has at least one byte, so the text has at most `limit` tokens
        return list(conversation)
    shortened, left = list[ChatMessage](), limit
    for message in conversation if keep == "head" else reversed(conversation):
        text = message["content"]
        offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if len(offsets) > left:
            spans = offsets[:left] if keep == "head" else offsets[len(offsets) - left :]
            text = text[spans[0][0] : spans[-1][1]] if spans else ""
        left = max(0, left - len(offsets))
        shortened.append({**message, "content": text})
    return shortened if keep == "head" else shortened[::-1]


_NUMBER = r"[-+]?(?:[0-9]{1,12}(?:\.[0-9]{1,12})?|\.[0-9]{1,12})"
_MARKUP = r"[\s*_`\"']{0,8}"
_SCORE = re.compile(rf"\bscore{_MARKUP}[:=]{_MARKUP}({_NUMBER})(?![.,]?[0-9])", re.IGNORECASE)
_TAIL = 2_000
"""Only this many characters at the end of a reply are searched for the score."""


def fill_in(template: str, prompt: str, response: str) -> str:
    """Fill in a template. Braces in the prompt and the response are not treated as placeholders.

    `{mark}` is a digest of the prompt and the response, so neither can contain it and thereby end the quotation.
    """
    mark = hashlib.sha256(f"{prompt}\0{response}".encode()).hexdigest()[:12]
    values = {"prompt": prompt, "response": response, "mark": f"[{mark}]"}
    return re.sub(r"\{(prompt|response|mark)\}", lambda match: values[match[1]], template)


def read_score(reply: str) -> float | str:
    """Return the number after the last `Score:`; without one, the end of the reply, as a number if it is one."""
    text = reply.rpartition(THOUGHTS_END)[2][-_TAIL:]
    numbers = _SCORE.findall(text)
    if not numbers and re.fullmatch(_NUMBER, text.strip()):
        numbers = [text.strip()]
    return float(numbers[-1]) if numbers else text
