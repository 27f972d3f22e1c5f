"""`RewardEndpoint` scores the items of one endpoint, with limits on time and concurrency.

If an item cannot be scored, the answer is an `Unscored` with the reason. The `rules` endpoint may use the user's
`compute_score` from the `rules_file`. If a user's function never returns, the service answers `Unscored`, but cannot
stop the function, whose thread stays busy until the service exits.

    def compute_score(data_source, solution_str, ground_truth, extra_info=None):
        return {"score": 1.0, "characters": len(solution_str)}

The arguments are those of verl's `reward.custom_reward_function`; `solution_str` is the trajectory's final answer. The
function may be a coroutine function. The function returns the correctness, or a dict with the correctness as `score`
and additional numbers to log.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import anyio

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.components.correctness import Custom
from agent_rl.rewards.compose import Reward
from agent_rl.rewards.service.settings import ServiceSettings
from agent_rl.rewards.service.wire import Answer, Arguments, Scored, Unscored, Whole
from agent_rl.rewards.user_function import UserFunction
from agent_rl.settings import RewardSettings
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.settings.user_code import UserCodeError
from agent_rl.trajectory import Trajectory

logger = logging.getLogger(__name__)


class RewardEndpoint:
    """Scores items with the reward of one section of the service's configuration.

    Args:
        section: `rules` or `judge`.
        settings: the service's settings, in which this section is set.

    Raises:
        ConfigError: a setting cannot be used.
    """

    def __init__(self, section: str, settings: ServiceSettings) -> None:
        self._custom = None
        if section == "rules" and settings.rules_file is not None:
            self._custom = _function(settings.rules_file, settings.max_concurrent)
        self._reward = _reward(section, settings, self._custom)
        self._slots = asyncio.Semaphore(settings.max_concurrent)
        self._timeout_s = settings.timeout_s

    async def answer(self, items: Sequence[Arguments | Whole]) -> list[Answer]:
        """Score the items, and return one answer per item in the same order."""
        return list(await asyncio.gather(*map(self._answer, items)))

    async def close(self) -> None:
        """Release the reward's resources."""
        await self._reward.close()

    async def _answer(self, item: Arguments | Whole) -> Answer:
        trajectory = item.trajectory if isinstance(item, Whole) else item.to_trajectory()
        problem = f"not scored within {self._timeout_s:g} s"
        async with self._slots:
            try:
                with anyio.move_on_after(self._timeout_s):
                    return await self._measure(trajectory)
            except UnscoredError as error:
                problem = str(error)
            except Exception as error:  # an error in the configuration or user code is logged and sent to the client
                logger.error("scoring a trajectory of %r failed", trajectory.data_source, exc_info=error)
                problem = str(error) if isinstance(error, UserCodeError) else f"{type(error).__name__}: {error}"
        return Unscored(error=problem)

    async def _measure(self, trajectory: Trajectory) -> Scored:
        score = await self._reward.score(trajectory)
        details = trajectory.info.get("reward") or {}
        notes = dict(details.get("notes", {}))
        numbers = {} if self._custom is None else notes.pop("correctness", {}).get("numbers", {})
        logged = {**numbers, **details.get("logged", {})}
        if invalid := [name for name, value in logged.items() if not math.isfinite(value)]:
            raise UnscoredError(f"logged numbers must be finite: {', '.join(invalid)}")
        return Scored(score=score.total, components=score.components, logged=logged, notes=notes)


def _function(rules_file: str, max_concurrent: int) -> Custom:
    """Load `compute_score` from the file; it runs in its own threads, so that slow calls do not delay other work."""
    place, threads = Place("rules_file"), ThreadPoolExecutor(max_concurrent, "rules")
    function = UserFunction(find_object(f"{rules_file}:compute_score", place), place)
    return lambda trajectory: function.judge(trajectory, trajectory.answer or "", threads=threads)


def _reward(section: str, settings: ServiceSettings, custom: Custom | None) -> Reward:
    try:
        reward = Reward(
            settings.reward(section) or RewardSettings(),
            max_response_tokens=settings.max_response_tokens,
            custom=custom,
        )
    except ConfigError as error:
        raise ConfigError(error.key.replace("agent_rl.reward", section, 1), error.problem, error.remedy) from error
    if reward.needs_groups:
        problem = "a component compares the samples of a prompt, but a service scores each sample separately"
        raise ConfigError(section, problem, "Move the component to the trainer's agent_rl.reward")
    return reward
