"""A reward that differs between the samples of a prompt, so that every sequence has an advantage."""

from typing import Any


def compute_score(extra_info: dict[str, Any], **more: Any) -> float:
    return float(extra_info["trajectory"]["id"].rpartition("_")[2]) / 2
