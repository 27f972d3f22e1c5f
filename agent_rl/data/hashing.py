"""Numbers that look random and depend on nothing but their key: what one process draws, another draws as well."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["hashed"]


def hashed(key: str, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A number from 0 to 2^64 - 1 for each number, by splitmix64 (https://prng.di.unimi.it/splitmix64.c)."""
    start = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
    mixed: NDArray[np.uint64] = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed += np.full(len(numbers), start, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed
