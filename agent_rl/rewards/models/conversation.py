"""The text that a reward model reads, cut to what it may read, and the score in a generative model's reply to it.

A trajectory becomes chat messages, two texts, or a question. The loop's instructions and the tools' descriptions are
included if the trajectory's prompt has them. Observations (tool results, a user's messages) have the role `user`: few
chat templates of reward models know another. A conversation beyond the model's context would be refused by its server:
`fit` cuts it by the model's own tokens.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Literal

from agent_rl.errors import ConfigError
from agent_rl.rewards.judge.prompt import read_file
from agent_rl.rewards.judge.reply import THOUGHTS_END
from agent_rl.tools.truncation import encodable
from agent_rl.trajectory import Trajectory

__all__ = ["ChatMessage", "Keep", "Shown", "fill_in", "fit", "load_template", "messages", "read_score", "text_of"]

ChatMessage = dict[str, str]
Shown = Literal["conversation", "answer"]
Keep = Literal["head", "tail"]


def messages(trajectory: Trajectory, shown: Shown) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """The prompt and the response: all turns, or the final answer as one message (empty without an answer)."""
    prompt = [{"role": message.role, "content": encodable(message.content)} for message in trajectory.prompt]
    if shown == "answer":
        return prompt, [{"role": "assistant", "content": encodable(trajectory.answer or "")}]
    response: list[ChatMessage] = []
    for turn in trajectory.turns:
        response.append({"role": "assistant", "content": encodable(turn.text)})
        if turn.observation is not None:
            response.append({"role": "user", "content": encodable(turn.observation)})
    return prompt, response


def text_of(said: Sequence[ChatMessage]) -> str:
    """Messages as a text; of several, each begins with its role."""
    if len(said) == 1:
        return said[0]["content"]
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in said)


def fit(said: Sequence[ChatMessage], most: int | None, keep: Keep, tokenizer: Any) -> list[ChatMessage]:
    """The messages with at most so many tokens together; those beyond are empty, so that the roles still alternate.

    Args:
        said: is not changed.
        most: tokens; None: all.
        keep: the first tokens, or the last ones.
        tokenizer: a fast tokenizer of the model.
    """
    size = sum(len(message["content"].encode("utf-8", "replace")) for message in said)
    if most is None or size <= most:  # a token has a byte or more
        return list(said)
    found, left = list[ChatMessage](), most
    for message in said if keep == "head" else reversed(said):
        text = message["content"]
        offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if len(offsets) > left:
            kept = offsets[:left] if keep == "head" else offsets[len(offsets) - left :]
            text = text[kept[0][0] : kept[-1][1]] if kept else ""
        left = max(0, left - len(offsets))
        found.append({**message, "content": text})
    return found if keep == "head" else found[::-1]


_NUMBER = r"[-+]?(?:[0-9]{1,12}(?:\.[0-9]{1,12})?|\.[0-9]{1,12})"
_MARKUP = r"[\s*_`\"']{0,8}"
_SCORE = re.compile(rf"\bscore{_MARKUP}[:=]{_MARKUP}({_NUMBER})(?![0-9])", re.IGNORECASE)
_READ = 2_000
"""Characters at the end of a reply in which the score is looked for."""


def load_template(path: str | None, default: str, key: str) -> str:
    """The template in a text file; None: the built-in one of this name.

    Raises:
        ConfigError: the file cannot be read, or has no placeholder for the response.
    """
    file, text = read_file(path, default, f"{key}.template")
    if "{response}" not in text:
        raise ConfigError(f"{key}.template", f"{file} does not contain {{response}}", "Say where the response goes")
    return text


def fill_in(template: str, prompt: str, response: str) -> str:
    """The template filled in; braces in the texts are not placeholders.

    The mark is a digest of the texts: the judged text cannot contain it, and so cannot end its own fence.
    """
    mark = hashlib.sha256(f"{prompt}\0{response}".encode()).hexdigest()[:12]
    values = {"prompt": prompt, "response": response, "mark": f"[{mark}]"}
    return re.sub(r"\{(prompt|response|mark)\}", lambda match: values[match[1]], template)


def read_score(reply: str) -> float | str:
    """The number after the last `Score:`, or the reply itself if it is a number; else the reply's end, for an error."""
    text = reply.rpartition(THOUGHTS_END)[2][-_READ:]
    numbers = _SCORE.findall(text)
    if not numbers and re.fullmatch(_NUMBER, text.strip()):
        numbers = [text.strip()]
    return float(numbers[-1]) if numbers else text
