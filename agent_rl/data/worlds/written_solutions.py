r"""Solutions that were written down, worked as episodes with Python: ReTool's cold start on published rows.

    <code>                            a program stands in the text (ReTool-SFT): it ends a turn, and the output
    ```python                         that was recorded is replaced by what the tool gives now
    ...
    ```
    </code>
    <interpreter>25</interpreter>
    It is $12 \cdot 9 = 108$ cents.   none does (MATH): an equation of numbers becomes one

The text is in `extra_info.solution`, as `data_preprocess/math_dataset.py` writes it. A cold start with `rows: recipe`
takes those rows; the generated ones, for trials without the data, are those of the world `math_python` with a solution.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.data.worlds import math_python
from agent_rl.data.worlds.world import Turns, World
from agent_rl.errors import ToolError
from agent_rl.tools.builtin.calculator import calculate

__all__ = ["WORLD"]

_RECORDED = re.compile(
    r"\s*(?:<code>\s*)?^[ \t]*```python[ \t]*\n(.*?)^[ \t]*```(?:\s*</code>)?(?:\s*<interpreter>.*?</interpreter>)?\s*",
    re.DOTALL | re.MULTILINE,
)
_ANSWER_TAG = re.compile(r"</?answer>\s*")
_NUMBERS = r"(?:[\d.,()+\-*/^ ]|\\cdot|\\times|\\div|\\left|\\right)+?"
_EQUATION = re.compile(rf"(?<=[$=])\s*({_NUMBERS})\s*=\s*(-?\d[\d,]*(?:\.\d+)?)(?=\s*(?:[$=\\]|[.,]\s))")
_OPERATION = re.compile(r"[\d)] *(?:[-+/]|\*\*?) *[\d(]")
_LATEX = (
    (re.compile(r"\\left|\\right|(?<=\d),(?=\d{3})"), ""),
    (re.compile(r"\\cdot|\\times"), "*"),
    (re.compile(r"\\div"), "/"),
    (re.compile(r"\^"), "**"),
    (re.compile(r"(?<=[\d)])\s*(?=\()"), " * "),
    (re.compile(r"\s+"), " "),
)
"""What is written otherwise in Python."""


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """See `World.write`; nothing else is written."""
    splits = math_python.WORLD.write(folder, seed, counts)
    return {split: [_written(row) for row in rows] for split, rows in splits.items()}


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Writes the solution; each program ends a turn."""
    *steps, last = _turns(row["extra_info"]["solution"])
    for text, program in steps:
        yield f"{text}\n```python\n{program.strip()}\n```".lstrip()
    yield last[0]


def works(row: Mapping[str, Any]) -> bool:
    """Whether the row has a solution with something to run."""
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
    """Text and program of each turn; the last has no program."""
    parts = _RECORDED.split(_ANSWER_TAG.sub("", solution))
    if len(parts) == 1:
        parts = _divided(solution)
    texts, programs = parts[::2], [*parts[1::2], ""]
    return [(text.strip(), program) for text, program in zip(texts, programs, strict=True)]


def _divided(solution: str) -> list[str]:
    """The text before the sentence with the longest equation of numbers that holds, its program, and the rest."""
    found = [(match, _program(match[1])) for match in _EQUATION.finditer(solution)]
    held = [(match, program) for match, program in found if _gives(program, match[2].replace(",", ""))]
    if not held:
        return [solution]
    match, program = max(held, key=lambda each: len(each[1]))
    begin = max(solution.rfind(end, 0, match.start()) for end in (". ", ".\n", "\n\n"))
    cut = begin + 1 if begin >= 0 else 0
    return [solution] if "\\boxed" in solution[:cut] else [solution[:cut] or "I compute it.", program, solution[cut:]]


def _program(expression: str) -> str:
    for pattern, written in _LATEX:
        expression = pattern.sub(written, expression)
    return expression.strip()


def _gives(program: str, value: str) -> bool:
    if not _OPERATION.search(program):
        return False
    try:
        return calculate(program) == value
    except ToolError:
        return False
