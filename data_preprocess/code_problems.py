"""Convert APPS, TACO, CodeContests, HumanEval, LeetCode, KodCode or MBPP to files of rows.

Each row is tested: its published solution must pass its tests, and functions that return None must fail them. Rows
that fail this check are omitted and counted.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_rl.data.code import CODE, stub
from agent_rl.data.conversion import run
from agent_rl.errors import UnscoredError
from agent_rl.rewards import find_scorer
from agent_rl.rewards.scorers import score_now

SCORER = find_scorer({"name": "code", "all_or_nothing": True})


def trial(row: Mapping[str, Any]) -> str:
    """Return the reason to omit a row, or "" if training can use the row."""
    info = {"data_source": row["data_source"], **row["extra_info"]}

    def passes(program: str) -> bool:
        response = f"```python\n{program}\n```"
        return score_now(SCORER, response, row["reward_model"]["ground_truth"], info) == 1.0

    try:
        if info.get("solution") and not passes(info["solution"]):
            return "the published solution fails their tests"
        return "functions that return None pass their tests" if passes(stub(row)) else ""
    except UnscoredError:
        return "their tests cannot be run"


if __name__ == "__main__":
    run(replace(CODE, trial=trial), __doc__)
