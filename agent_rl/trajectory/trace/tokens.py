"""Reads and writes `trace.tokens.jsonl` next to a trace: the token ids, masks and log-probs used in training.

Each line is `{"id": ..., "size": ..., "data": ...}`. `id` is the trajectory's id. `size` is the number of bytes after
the comma that follows it, so that a reader can recognize an incomplete line. `data` is a line of JSON followed by
binary numbers, compressed with zlib and encoded as base64. The JSON contains the messages, the tools, and for each
sequence the numbers of prompt and response tokens, whether it has log-probs, the number of images, and the numbers of
its samples. The binary numbers are the ids of all sequences (prompt, response, prompt, ...) as 32-bit integers, then
their masks as bytes, then their log-probs as 32-bit floats. 32-bit numbers are little-endian and grouped by byte: all
first bytes, then all second bytes, and so on.
"""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict  # before Python 3.12, pydantic does not support typing.TypedDict

from agent_rl.work.parts import append_lines, parts, sibling, whole_lines

LEVEL = 1
"""zlib compression level."""
_HEAD = re.compile(rb'\{"id":("(?:[^"\\]|\\.)*"),"size":(\d+),')


class TokenSequence(TypedDict):
    """One training sequence; a trajectory has several if its history could not be extended."""

    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]
    """For each token of the response, 1 if the policy sampled the token, else 0."""
    logprobs: list[float] | None
    """Log-probs of the sampled response tokens, 0 for other tokens, or None if no log-probs were requested."""
    images: int
    samples: NotRequired[list[int]]
    """The number of each run of sampled tokens among all samples of the trajectory (from 1), which are in a different
    order if conversations were parallel; missing in traces of an older version."""


class Tokens(TypedDict):
    """The conversation of a trajectory as its chat template received it, and its training sequences."""

    messages: list[Any]
    """Messages, in which an image is the part `{"type": "image"}`, or no messages if there are videos or audio."""
    tools: list[Any]
    sequences: list[TokenSequence]


def sampled_runs(mask: Sequence[int]) -> list[tuple[int, int]]:
    """Return the start and the end of each run of sampled tokens; a run is a turn, or the notes from a fold."""
    import numpy as np

    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(mask) != 0, [0]]))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def append_tokens(trace: str | os.PathLike[str], id: str, tokens: Tokens, *, part_bytes: int | None = None) -> None:
    """Append the tokens of one trajectory of a trace.

    Raises:
        OSError: the file cannot be written.
    """
    append_lines(sibling(trace, "tokens"), token_line(id, tokens), part_bytes=part_bytes)


def token_line(id: str, tokens: Tokens) -> bytes:
    """Return the line of a trajectory's tokens."""
    lengths: list[Any] = []
    ids, masks, logprobs = list[int](), bytearray(), list[float]()
    for sequence in tokens["sequences"]:
        prompt, response, values = sequence["prompt_ids"], sequence["response_ids"], sequence["logprobs"]
        samples = [sequence["samples"]] if "samples" in sequence else []
        lengths.append((len(prompt), len(response), values is not None, sequence["images"], *samples))
        ids += prompt + response
        masks += bytes(sequence["mask"])
        logprobs += values or []
    content = {"messages": tokens["messages"], "tools": tokens["tools"], "sequences": lengths}
    head = json.dumps(content, separators=(",", ":")).encode()
    parts = (head, b"\n", _planes("i", ids), masks, _planes("f", logprobs))
    rest = f'"data":"{compressed(b"".join(parts))}"}}\n'.encode()
    return f'{{"id":{json.dumps(id)},"size":{len(rest)},'.encode() + rest


class TokenReader:
    """Finds a trajectory's tokens by its id, even while a run is writing the file.

    Args:
        trace: the trace, with or without a token file next to it.
    """

    def __init__(self, trace: str | os.PathLike[str]) -> None:
        self._first = sibling(trace, "tokens")
        self._places: dict[str, tuple[Path, int]] = {}
        """Part and offset of the last line of each trajectory; an episode that was repeated has several lines."""
        self._ends: dict[Path, int] = {}
        """Offset up to which each part has been read."""

    def __contains__(self, id: str) -> bool:
        """Whether the tokens of a trajectory are stored."""
        if id not in self._places:
            self._refresh()
        return id in self._places

    def read(self, id: str) -> Tokens | None:
        """Return the tokens of a trajectory, or None if they were not stored.

        Raises:
            ValueError: the line is not a token record; the error names the file.
        """
        if id not in self:
            return None
        path, start = self._places[id]
        with open(path, "rb") as file:
            file.seek(start)
            line = file.readline()
        try:
            return _tokens(json.loads(line))
        except (ValueError, KeyError, TypeError, zlib.error) as error:
            raise ValueError(f"{path}: the tokens of {id!r} cannot be read ({error})") from error

    def _refresh(self) -> None:
        """Index the lines written since the last call, except incomplete lines, which are shorter than their `size`."""
        for path in filter(Path.exists, parts(self._first)):
            for start, line in whole_lines(path, self._ends.get(path, 0)):
                head = _HEAD.match(line)
                if head and head.end() + int(head[2]) == len(line):
                    self._places[json.loads(head[1])] = (path, start)
                self._ends[path] = start + len(line)


def pack(values: Sequence[float]) -> str:
    """Pack numbers into text: 32-bit floats, grouped by byte, compressed with zlib and encoded as base64."""
    return compressed(_planes("f", values))


def unpack(text: str) -> list[float]:
    """Unpack the numbers from text that `pack` returned.

    Raises:
        ValueError: the text did not come from `pack`.
    """
    return _numbers("f", decompressed(text))


def _tokens(record: Any) -> Tokens:
    head, _, data = decompressed(record["data"]).partition(b"\n")
    content = json.loads(head)
    prompts = [row[0] for row in content["sequences"]]
    responses = [row[1] for row in content["sequences"]]
    logged = [row[1] if row[2] else 0 for row in content["sequences"]]
    count = sum(prompts) + sum(responses)
    masked = 4 * count + sum(responses)
    if len(data) != masked + 4 * sum(logged):
        raise ValueError("the data has the wrong length")
    ids = iter(_numbers("i", data[: 4 * count]))
    masks = iter(data[4 * count : masked])
    logprobs = iter(_numbers("f", data[masked:]))
    sequences = [
        TokenSequence(
            prompt_ids=list(islice(ids, prompt)),
            response_ids=list(islice(ids, response)),
            mask=list(islice(masks, response)),
            logprobs=list(islice(logprobs, response)) if has_logprobs else None,
            images=images,
            **({"samples": samples[0]} if samples else {}),  # type: ignore[typeddict-item]
        )
        for prompt, response, has_logprobs, images, *samples in content["sequences"]
    ]
    return Tokens(messages=content["messages"], tools=content["tools"], sequences=sequences)


def _planes(kind: Literal["i", "f"], numbers: Sequence[float]) -> bytes:
    import numpy as np

    values: Any = np.array(numbers, f"<{kind}4")
    return bytes(values.view(np.uint8).reshape(-1, 4).T.tobytes())


def _numbers(kind: Literal["i", "f"], planes: bytes) -> list[Any]:
    import numpy as np

    raw = np.frombuffer(planes, np.uint8).reshape(4, -1).T.tobytes()
    return list(np.frombuffer(raw, f"<{kind}4").tolist())


def compressed(data: bytes) -> str:
    """Compress data with zlib and encode it as base64."""
    packer = zlib.compressobj(LEVEL, memLevel=5)  # by default, clearing zlib's buffers takes as long as packing
    return base64.b64encode(packer.compress(data) + packer.flush()).decode()


def decompressed(text: str) -> bytes:
    """Return the data in text that `compressed` returned."""
    return zlib.decompress(base64.b64decode(text))
