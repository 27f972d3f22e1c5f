"""Converts problems from any generator of the reasoning-gym package to rows, which the generator's verifier scores.

A row contains the whole entry in `extra_info.entry`, with the generator's name in the metadata. The `reasoning_gym`
scorer calls the generator's verifier, because many problems have several right answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent_rl.data.conversion import RawSet, text_of
from agent_rl.data.rows import makes_row
from agent_rl.data.sources import Raw
from agent_rl.errors import ConfigError, did_you_mean

BLOCK = 1_000_000
"""Distance between the seeds of two splits, because a generator makes its entry number i from the seed plus i."""


@makes_row
def to_row(example: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a generator's entry, which consists of `question`, `answer` and `metadata`, to a row."""
    entry = json.loads(json.dumps(dict(example), default=str))
    name = entry["metadata"]["source_dataset"]
    return {
        "question": text_of(example, "question"),
        "data_source": f"reasoning_gym/{name}",
        "ground_truth": str(entry["answer"]) if entry.get("answer") is not None else entry,
        "ability": "reasoning",
        "extra_info": {"entry": entry},
    }


def generate(name: str, seed: int, count: int) -> Iterator[Raw]:
    """Yield a generator's entries; the same name, seed and count always yield the same entries.

    Raises:
        ConfigError: the package is not installed, or contains no such generator.
    """
    try:
        from reasoning_gym import create_dataset
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ConfigError("--generator", "reasoning-gym is not installed", "Run pip install reasoning-gym") from error

    if name not in DATASETS:
        raise ConfigError("--generator", f"there is no generator {name!r}", did_you_mean(name, DATASETS))
    for number, entry in enumerate(create_dataset(name, seed=seed, size=count) if count else ()):
        yield Raw(f"{name}, seed {seed}, entry {number}", dict(entry))


def splits(name: str, seed: int, sizes: Mapping[str, int]) -> dict[str, Iterator[Raw]]:
    """Return a generator's entries for `train` and `test`; `train` loses the questions that are also in `test`."""
    test = list(generate(name, 2 * seed * BLOCK, sizes["test"]))
    held_out = {raw.value["question"] for raw in test}
    train = generate(name, (2 * seed + 1) * BLOCK, sizes["train"])
    return {"train": (raw for raw in train if raw.value["question"] not in held_out), "test": iter(test)}


def _generate(options: dict[str, Any], seed: int, sizes: Mapping[str, int]) -> dict[str, Iterator[Raw]]:
    return splits(options.pop("generator"), seed, sizes)


_GENERATOR = {"required": True, "metavar": "NAME", "help": "Name of a generator, for example leg_counting"}
REASONING_GYM = RawSet("reasoning_gym", to_row, arguments={"--generator": _GENERATOR}, generate=_generate)
