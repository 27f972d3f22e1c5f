"""`ScoreFunction`: the user's own function in the file that `rules_file` names.

    def compute_score(data_source, solution_str, ground_truth, extra_info=None):
        return {"score": 1.0, "characters": len(solution_str)}

The arguments are those of verl's `reward.custom_reward_function`; of a trajectory, `solution_str` is the final answer.
It returns the correctness, or a dict with it at `score` and further numbers to log, and may be a coroutine.
"""

from __future__ import annotations

import asyncio
import inspect
import reprlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, SupportsFloat

from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.trajectory import Trajectory

__all__ = ["ScoreFunction"]


class ScoreFunction:
    """The function of a file.

    Args:
        path: the file.
        threads: for a function that is not a coroutine, so that one slow call does not delay others.

    Raises:
        ConfigError: the file does not exist, cannot be imported, or has no `compute_score`.
    """

    def __init__(self, path: str, threads: int = 32) -> None:
        self._threads = ThreadPoolExecutor(threads, "rules")
        self._function = find_object(f"{path}:compute_score", Place("rules_file"))

    async def judge(self, trajectory: Trajectory, extra_info: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
        """The correctness, and what is logged beside it.

        Args:
            trajectory: its answer is `solution_str`; its dict is at `extra_info["trajectory"]`.
            extra_info: the row's column of that name.

        Raises:
            UnscoredError: raised by the function.
            TypeError: the function returns no number; its own exceptions are passed on.
        """
        arguments = {
            "data_source": trajectory.data_source,
            "solution_str": trajectory.answer or "",
            "ground_truth": trajectory.ground_truth,
            "extra_info": {**extra_info, "trajectory": trajectory.to_dict()},
        }
        if inspect.iscoroutinefunction(self._function):
            result = await self._function(**arguments)
        else:
            call = partial(self._function, **arguments)
            result = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        entries = result if isinstance(result, Mapping) else {"score": result}
        numbers = {str(name): float(value) for name, value in entries.items() if isinstance(value, SupportsFloat)}
        if "score" not in numbers:
            raise TypeError(f"compute_score returned {reprlib.repr(result)}: no number, and no dict with a 'score'")
        return numbers.pop("score"), numbers
