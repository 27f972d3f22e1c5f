"""Turns the tokens of a trajectory into text, shaded by the probability of the sampled tokens."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from agent_rl.trajectory.trace import TokenSequence

MOST_TOKENS = 20_000
"""Maximum number of tokens per sequence on a page; `?full=1` shows all."""
SHADES = ((0.9, "s"), (0.5, "s s1"), (0.1, "s s2"), (0.01, "s s3"), (0.0, "s s4"))
"""The minimum probability of the tokens in each style."""


class ShadedToken(NamedTuple):
    """A token, or several tokens that together encode one character."""

    text: str
    ids: str
    shade: str
    """Name of the style; `given` for tokens that training did not use."""
    about: str
    """The id, the log-prob and the probability of the token, as text."""


def find_tokenizer(folder: Path) -> Path | None:
    """Return the `tokenizer.json` of a run's base model, or None if it is not on this machine.

    Args:
        folder: the run's folder; its `run.json` names the model by its folder or by its name in Hugging Face's cache.
    """
    try:
        configuration = json.loads((folder / "run.json").read_text())["configuration"]
        name = str(configuration["actor_rollout_ref"]["model"]["path"])
        if (path := Path(name).expanduser() / "tokenizer.json").is_file():
            return path
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(name, "tokenizer.json")
    except (ImportError, OSError, ValueError, KeyError, TypeError):
        return None
    return Path(cached) if isinstance(cached, str) else None


def shaded(sequence: TokenSequence, tokenizer: Path | None, full: bool = False) -> dict[str, Any]:
    """Return one training sequence for a page: its tokens, counts, mean log-prob, and the number of omitted tokens.

    Args:
        sequence: a training sequence from the trace.
        tokenizer: the model's `tokenizer.json`; if None, ids are shown.
        full: whether to show all tokens instead of `MOST_TOKENS`.
    """
    most = None if full else MOST_TOKENS
    prompt, response = sequence["prompt_ids"], sequence["response_ids"]
    mask, logprobs = sequence["mask"], sequence["logprobs"]
    values = [None] * len(response) if logprobs is None else logprobs
    sampled = [value for value, trained in zip(values, mask, strict=False) if trained and value is not None]
    marks = [value if trained else "given" for value, trained in zip(values, mask, strict=False)]
    return {
        "prompt": list(_tokens(prompt[:most], ["given"] * len(prompt), tokenizer)),
        "response": list(_tokens(response[:most], marks, tokenizer)),
        "prompt_size": len(prompt),
        "size": len(response),
        "sampled": sum(map(bool, mask)),
        "images": sequence["images"],
        "mean": math.fsum(sampled) / len(sampled) if sampled else None,
        "cut": 0 if most is None else max(0, len(prompt) - most) + max(0, len(response) - most),
    }


def _tokens(ids: Sequence[int], marks: Sequence[Any], tokenizer: Path | None) -> Iterator[ShadedToken]:
    at = 0
    for text, count in _texts(ids, tokenizer):
        part, values = ids[at : at + count], marks[at : at + count]
        at += count
        label = ", ".join(map(str, part))
        if "given" in values:
            yield ShadedToken(text, label, "given", f"token {label}, not trained on")
        elif None in values:
            yield ShadedToken(text, label, "s", f"token {label}, sampled")
        else:
            lowest = min(values)
            style = next(style for least, style in SHADES if math.exp(lowest) >= least or not least)
            about = f"token {label}, log-prob {', '.join(f'{value:.4g}' for value in values)}"
            yield ShadedToken(text, label, style, f"{about}, probability {math.exp(min(0.0, lowest)):.3g}")


def _texts(ids: Sequence[int], tokenizer: Path | None) -> Iterator[tuple[str, int]]:
    """Yield each piece of text with its number of tokens; tokens that share a character are decoded together."""
    if tokenizer is None:
        yield from ((f"{id} ", 1) for id in ids)
        return
    from tokenizers.decoders import DecodeStream

    loaded = _load(tokenizer)
    stream, waiting = DecodeStream(skip_special_tokens=False), 0
    for id in ids:
        waiting += 1
        if (text := stream.step(loaded, id)) is not None:
            yield text, waiting
            waiting = 0
    if waiting:
        yield "\ufffd", waiting


@lru_cache(maxsize=2)
def _load(path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))
