"""`Scorer`: one endpoint's reward, with limits on time and on what is measured at one time.

Whatever fails is an `Unscored` with the reason. What this does not promise: that a rule of the user's that never
returns is stopped; its trajectory is answered, and the thread stays busy until the service ends.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Any

from agent_rl.errors import AgentRLError, UnscoredError
from agent_rl.rewards.service.wire import Answer, Arguments, Unscored, Verdict, Whole
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import Trajectory

__all__ = ["Scorer"]

logger = logging.getLogger(__name__)


class Scorer:
    """Answers items by a reward section.

    Args:
        settings: the section.
        rules_file: a file whose `compute_score` gives the correctness; None: as the section says.
        max_response_tokens: see `Reward`.
        max_concurrent: trajectories that are measured at one time.
        timeout_s: seconds that one may take.

    Raises:
        ConfigError: naming what cannot be used.
    """

    def __init__(
        self,
        settings: RewardSettings,
        *,
        rules_file: str | None = None,
        max_response_tokens: int | None = None,
        max_concurrent: int = 256,
        timeout_s: float = 300.0,
    ) -> None:
        self._reward = _reward(settings, rules_file, max_response_tokens)
        self._slots = asyncio.Semaphore(max_concurrent)
        self._timeout_s = timeout_s

    async def answer(self, items: Sequence[Arguments | Whole]) -> list[Answer]:
        """One answer for each, in order."""
        return list(await asyncio.gather(*map(self._answer, items)))

    async def close(self) -> None:
        """Give back what the reward holds."""
        await self._reward.close()

    async def _answer(self, item: Arguments | Whole) -> Answer:
        trajectory = item.to_trajectory()
        async with self._slots:
            try:
                return await asyncio.wait_for(self._measure(trajectory, item.extra_info), self._timeout_s)
            except asyncio.TimeoutError:
                problem = f"not scored within {self._timeout_s:g} s"
            except UnscoredError as error:
                problem = str(error)
            except AgentRLError as error:  # the service's configuration: for whoever runs it, and the client must know
                logger.error("%s", error)
                problem = f"{type(error).__name__}: {error}"
            except Exception as error:  # a user's rule: to its author by the log, and the client must know
                logger.exception("scoring a trajectory of %r failed", trajectory.data_source)
                problem = f"{type(error).__name__}: {error}"
        return Unscored(error=problem)

    async def _measure(self, trajectory: Trajectory, extra_info: dict[str, Any]) -> Verdict:
        score, logged = await self._reward.score(trajectory, extra_info=extra_info)
        numbers = {"score": score.total, **score.components, **logged}
        if wrong := [name for name, value in numbers.items() if not math.isfinite(value)]:
            raise UnscoredError(f"{', '.join(wrong)}: not a number")
        notes = trajectory.info.get("reward") or {}
        return Verdict(score=score.total, components=score.components, logged=logged, notes=notes)


# --- until agent_rl.rewards.compose has Reward


class _Reward:
    def __init__(self, settings: RewardSettings, rules_file: str | None, max_response_tokens: int | None) -> None:
        from pathlib import Path

        from agent_rl.errors import ConfigError
        from agent_rl.importing import ClassNameError, find_object

        self._settings, self._limit = settings, max_response_tokens
        self._rule = None
        if rules_file is not None:
            try:
                self._rule = find_object(f"{rules_file}:compute_score", Path.cwd())
            except ClassNameError as error:
                raise ConfigError("rules_file", error.problem, error.remedy) from error

    async def score(self, trajectory: Trajectory, *, extra_info: dict[str, Any]) -> Any:
        from agent_rl.rewards import compose

        verdict, logged = None, {}
        if self._rule is not None:
            result = await asyncio.to_thread(
                self._rule, trajectory.data_source, trajectory.answer, trajectory.ground_truth, extra_info
            )
            logged = dict(result) if isinstance(result, dict) else {"score": result}
            verdict = logged.pop("score")
        return compose.score(trajectory, self._settings, verdict=verdict, max_response_tokens=self._limit), logged

    async def close(self) -> None: ...


def _reward(settings: RewardSettings, rules_file: str | None, max_response_tokens: int | None) -> _Reward:
    return _Reward(settings, rules_file, max_response_tokens)
