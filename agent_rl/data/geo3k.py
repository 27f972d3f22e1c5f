"""Converts Geometry3K, a data set of questions about figures, to rows with images.

{"images": [image], "problem": "<image>Find x.", "answer": "3"}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_rl.data.contract import IMAGE
from agent_rl.data.conversion import Hub, RawSet, text_of, value_of
from agent_rl.data.rows import makes_row

DATA_SOURCE = "hiyouga/geometry3k"


@makes_row
def to_row(example: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an example to a row; if a problem has no `<image>`, its images are placed before its text.

    An image is a pillow image, bytes, a path, or a mapping with bytes or a path.
    """
    problem, images = text_of(example, "problem", "question"), value_of(example, "images", "image")
    images = list(images) if isinstance(images, list | tuple) else [images]
    return {
        "prompt": problem if IMAGE in problem else IMAGE * len(images) + problem,
        "question": problem.replace(IMAGE, "").strip(),
        "data_source": DATA_SOURCE,
        "ground_truth": value_of(example, "answer"),
        "ability": "geometry",
        "images": images,
    }


_HUB = {split: Hub(DATA_SOURCE, None, split) for split in ("train", "validation", "test")}
GEO3K = RawSet("geo3k", to_row, _HUB, agent_name="single_turn_agent")
GEO3K_WITH_TOOL = RawSet("geo3k_multiturn_w_tool", to_row, _HUB)
