r"""Converts math problems with short answers to rows: MATH, MATH-500, DAPO-Math, DeepMath, AIME, SVAMP, ReTool-SFT.

    {"problem": ..., "solution": "... \boxed{5}", "level": "Level 4"}      MATH
    {"problem": ..., "solution": ..., "answer": "5", "unique_id": ...}     MATH-500
    {"question": ..., "final_answer": "5", "r1_solution_1": ...}           DeepMath-103K
    {"prompt": [...], "reward_model": {"ground_truth": "5"}}               DAPO-Math, and other rows of verl
    {"problem" or "Problem" or "question": ..., "answer" or "Answer": 5}   AIME and the like
    {"Body": ..., "Question": ..., "Answer": 5.0}                          SVAMP
    {"messages": [{"content": "...*user question:* ..."}, {"content": "... \boxed{5}"}]}   ReTool-SFT

The solution is stored in `extra_info.solution`, the level in `extra_info.level`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_rl.data.boxes import last_boxed
from agent_rl.data.conversion import Hub, RawSet, text_of, value_of
from agent_rl.data.rows import makes_row
from agent_rl.data.shapes import as_row
from agent_rl.errors import ConfigError

_ANSWERS = ("answer", "Answer", "final_answer", "expected_answer")


def boxed_answer(solution: str) -> str:
    r"""Return the content of the last `\boxed{}`, including preceding boxes that "and", "or" or a comma joins to it.

    Raises:
        ConfigError: the solution contains no box.
    """
    answer = last_boxed(solution, joined=True)
    if answer is None:
        problem = rf"no \boxed{{}} in {solution[-60:]!r}"
        raise ConfigError("column solution", problem, "Put the answer in an answer column")
    return answer


@makes_row
def to_row(example: Mapping[str, Any], index: int, data_source: str | None = None) -> dict[str, Any]:
    """Convert an example to a row; the module's docstring lists the supported forms of examples.

    Args:
        example: the columns of the example.
        index: number of the row in its split.
        data_source: data source of the row; if None, it is derived from the form of the example.

    Raises:
        ConfigError: a column is missing or cannot be used; the error names the column.
    """
    if "prompt" in example:
        return _from_verl(example, index, data_source or "math_dapo")
    if "messages" in example:
        example, data_source = _from_retool(example), data_source or "JoeYing/ReTool-SFT"
    if "Body" in example:
        body, question = text_of(example, "Body").strip(), text_of(example, "Question")
        problem, source = f"{body}{'' if body.endswith(('.', ',', '?')) else '.'} {question}", "ChilleD/SVAMP"
    else:
        problem, source = text_of(example, "problem", "Problem", "question", "Question"), _source(example)
    has_answer = any(name in example for name in _ANSWERS)
    answer = value_of(example, *_ANSWERS) if has_answer else boxed_answer(text_of(example, "solution"))
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    names = {"solution": "solution", "level": "level", "type": "subject", "subject": "subject", "Type": "subject",
            "difficulty": "level", "topic": "subject", "Equation": "equation"}  # fmt: skip
    return {
        "question": problem,
        "data_source": data_source or source,
        "ground_truth": answer if isinstance(answer, int | float) else text_of({"answer": answer}, "answer"),
        "extra_info": {key: example[name] for name, key in names.items() if example.get(name) is not None},
    }


def _source(example: Mapping[str, Any]) -> str:
    if "unique_id" in example:
        return "HuggingFaceH4/MATH-500"
    if "final_answer" in example and "r1_solution_1" in example:
        return "zwhe99/DeepMath-103K"
    return "DigitalLearningGmbH/MATH-lighteval" if "level" in example and "solution" in example else "aime"


def _from_verl(example: Mapping[str, Any], index: int, data_source: str) -> dict[str, Any]:
    row, _ = as_row(example, number=index)
    return {
        "prompt": row["prompt"],
        "data_source": row.get("data_source") or data_source,
        "ground_truth": value_of(row.get("reward_model") or {}, "ground_truth"),
        "index": row["extra_info"]["index"],
    }


def _from_retool(example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the problem, without the prompt's format instructions, and the solution."""
    messages = list(example["messages"])
    if len(messages) != 2:
        raise ConfigError(
            "column messages", f"there are {len(messages)} messages, not a question and an answer", "See ReTool-SFT"
        )
    prompt, solution = (text_of(message, "content") for message in messages)
    problem = prompt.rpartition("*user question:*")[2].partition("Remember to place the final answer")[0].strip()
    return {"problem": problem.removeprefix("<answer>").removesuffix("</answer>").strip(), "solution": solution}


_HUB = {split: Hub("DigitalLearningGmbH/MATH-lighteval", None, split) for split in ("train", "test")}
_DATA_SOURCE = {"metavar": "NAME", "help": "Data source of the rows; default: derived from their form"}
MATH_DATASET = RawSet("math_dataset", to_row, _HUB, arguments={"--data_source": _DATA_SOURCE})
