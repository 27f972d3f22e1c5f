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
from dataclasses import replace
from typing import Any, Literal

from agent_rl.errors import ConfigError
from agent_rl.rewards.judge.prompt import read_file
from agent_rl.rewards.judge.reply import THOUGHTS_END
from agent_rl.tools.truncation import encodable
from agent_rl.trajectory import Trajectory

__all__ = ["ChatMessage", "Keep", "Shown", "fill_in", "fit", "load_template", "messages", "read_score", "texts"]

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


def texts(trajectory: Trajectory, shown: Shown) -> tuple[str, str]:
    """Prompt and response as texts; of several messages, each begins with its role."""
    prompt, response = messages(trajectory, shown)
    return _text(prompt), _text(response)


def _text(said: list[ChatMessage]) -> str:
    if len(said) == 1:
        return said[0]["content"]
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in said)


def fit(
    trajectory: Trajectory, shown: Shown, tokenizer: Any, most: tuple[int | None, int | None], keep: Keep
) -> tuple[Trajectory, bool]:
    """The trajectory with the texts of prompt and response cut to so many tokens, and whether any was cut.

    Args:
        trajectory: is not changed.
        shown: what of the response the model reads: all turns, or the answer.
        tokenizer: a fast tokenizer of the model.
        most: tokens of the prompt and of the response; None: all.
        keep: the first tokens of each, or the last ones.
    """
    prompt, response = most
    contents, was_cut = _cut([message.content for message in trajectory.prompt], prompt, keep, tokenizer)
    found = replace(
        trajectory,
        prompt=[
            replace(message, content=text)
            for message, text in zip(trajectory.prompt, contents, strict=True)
            if text or not message.content
        ],
    )
    if shown == "answer":
        (answer,), is_cut = _cut([trajectory.answer or ""], response, keep, tokenizer)
        return replace(found, answer=answer if trajectory.answer is not None else None), was_cut or is_cut
    said = [text or "" for turn in trajectory.turns for text in (turn.text, turn.observation)]
    texts, is_cut = _cut(said, response, keep, tokenizer)
    turns = [
        replace(turn, text=text, observation=observation if turn.observation is not None else None)
        for turn, text, observation in zip(trajectory.turns, texts[::2], texts[1::2], strict=True)
    ]
    return replace(found, turns=turns), was_cut or is_cut


def _cut(texts: Sequence[str], most: int | None, keep: Keep, tokenizer: Any) -> tuple[list[str], bool]:
    """The texts with at most so many tokens together; those beyond are empty."""
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if most is None or size <= most:  # a token has a byte or more
        return list(texts), False
    found = list(texts)
    left = most
    for at in range(len(found)) if keep == "head" else reversed(range(len(found))):
        offsets = tokenizer(found[at], add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if len(offsets) > left:
            kept = offsets[:left] if keep == "head" else offsets[len(offsets) - left :]
            found[at] = found[at][kept[0][0] : kept[-1][1]] if kept else ""
        left = max(0, left - len(offsets))
    return found, found != list(texts)


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
