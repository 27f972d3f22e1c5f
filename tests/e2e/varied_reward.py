"""A reward that differs between any two answers, so that an untrained model gets a gradient in every step."""

import zlib
from typing import Any


def compute_score(solution_str: str, **more: Any) -> float:
    return zlib.crc32(solution_str.encode()) % 101 / 100
