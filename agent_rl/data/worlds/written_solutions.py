"""Turns published solutions into episodes with Python: ReTool's cold start on published rows.

    <code>                            a program in the text (ReTool-SFT) ends a turn, and the output that was recorded
    ```python                         is replaced by what the tool returns now
    ...
    ```
    </code>
    <interpreter>25</interpreter>

The text is in `extra_info.solution`, as `data_preprocess/math_dataset.py` writes it. A cold start with `rows: recipe`
uses those rows; for trials without the data, rows of the `math_python` world are generated with a solution.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.data.worlds import math_python
from agent_rl.data.worlds.world import Turns, World

_RECORDED = re.compile(
    r"\s*(?:<code>\s*)?^[ \t]*```python[ \t]*\n(.*?)^[ \t]*```(?:\s*</code>)?(?:\s*<interpreter>.*?</interpreter>)?\s*",
    re.DOTALL | re.MULTILINE,
)
_ANSWER_TAG = re.compile(r"</?answer>\s*")


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each split (see `World.write`); no files are needed."""
    splits = math_python.WORLD.write(folder, seed, counts)
    return {split: [_written(row) for row in rows] for split, rows in splits.items()}


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Writes the solution, with a turn for each program."""
    *steps, last = _turns(row["extra_info"]["solution"])
    for text, program in steps:
        yield f"{text}\n```python\n{program.strip()}\n```".lstrip()
    yield last[0]


def works(row: Mapping[str, Any]) -> bool:
    """Whether the row has a solution with a program."""
    return len(_turns(str(row["extra_info"].get("solution") or ""))) > 1


WORLD = World(
    "written_solutions",
    write,
    {
        "oracle": oracle,
        "no_tool": math_python.WORLD.habits["no_tool"],
        "random": math_python.WORLD.habits["random"],
    },
    works=works,
)


def _written(row: dict[str, Any]) -> dict[str, Any]:
    solution = (
        f"A line of Python gives it.\n```python\n{row['extra_info']['program']}\n```\n"
        f"The answer is \\boxed{{{row['reward_model']['ground_truth']}}}."
    )
    info = {**row["extra_info"], "solution": solution}
    return {**row, "data_source": "agent_rl/written_solutions", "extra_info": info}


def _turns(solution: str) -> list[tuple[str, str]]:
    """Return the text and program of each turn; the last turn has no program."""
    parts = _RECORDED.split(_ANSWER_TAG.sub("", solution))
    texts, programs = parts[::2], [*parts[1::2], ""]
    return [(text.strip(), program) for text, program in zip(texts, programs, strict=True)]
