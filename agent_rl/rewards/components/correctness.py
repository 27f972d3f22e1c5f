"""The `correctness` component: whether the final answer is right, according to a scorer or an external verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.component import Component, GroupComponent, Value
from agent_rl.rewards.routing import find_scorer, on_fusion, route
from agent_rl.rewards.scorers import SCORERS, Scorer, score_answer
from agent_rl.rewards.user_function import scorer_info
from agent_rl.sandbox.fusion import FusionServer
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import Trajectory

Custom = Callable[[Trajectory], Awaitable[tuple[float, Mapping[str, float]]]]
"""A user's function that judges a trajectory; it returns the verdict, and numbers for the trajectory's notes."""

WITHOUT_SOURCE = SCORERS["gsm8k"].using(answer="marked")
"""The scorer for a trajectory without a data source, as in verl's dumps."""


class Correctness:
    """Scores the answers of trajectories.

    The value comes from the first available source: the verdict that the caller passes, the custom function, the reward
    service, the simulated user's verdict (only with `scorer: auto`) or the scorer. Without an answer, scorers return 0.

    Args:
        settings: the reward's settings.
        key: the configuration key of the settings, used in messages.
        api: the component that calls the reward service set in `reward_api`.

    Attributes:
        nothing: whether the `scorer: none` setting turns off the scoring of answers.
        logs: see `Component.logs`.
        custom: see `Reward`.
        fusion: the server on which the `code` scorer runs programs; None means this machine's sandbox.

    Raises:
        ConfigError: the scorer does not exist, or both a scorer and `reward_api` are set.
    """

    def __init__(self, settings: RewardSettings, key: str, api: Component | GroupComponent | None = None) -> None:
        name = settings.correctness.scorer
        self.nothing = name == "none"
        self.custom: Custom | None = None
        self.fusion: FusionServer | None = None
        self.scorer: Scorer | None = (
            None if name in ("auto", "none") else find_scorer(name, key=f"{key}.correctness.scorer")
        )
        assert api is None or isinstance(api, Component)
        if api is not None and name != "auto":
            raise ConfigError(
                f"{key}.correctness.scorer", f"both {name!r} and reward_api are set", "Remove one of them"
            )
        self.api = api
        self.logs = () if api is None else api.logs

    def require(self, data_source: str) -> None:
        """Check that a data source's answers can be scored.

        Raises:
            ConfigError: a scorer is needed, but none is known for the data source.
        """
        if self.scorer is None and self.api is None and self.custom is None and data_source:
            route(data_source)

    async def measure(self, trajectory: Trajectory, verdict: float | None) -> Value:
        """Return the answer's value, usually 0 or 1.

        Raises:
            UnscoredError: the answer cannot be scored.
        """
        if verdict is not None:
            return Value(verdict)
        if self.custom is not None:
            value, numbers = await self.custom(trajectory)
            return Value(value, notes={"numbers": numbers} if numbers else {})
        if self.api is not None:
            return await self.api.measure(trajectory)
        if self.scorer is None and trajectory.verdict is not None:
            return Value(trajectory.verdict)
        scorer = self.scorer or (route(trajectory.data_source) if trajectory.data_source else WITHOUT_SOURCE)
        if self.fusion is not None:
            scorer = on_fusion(scorer, self.fusion)
        info = scorer_info(trajectory)
        try:
            result = await score_answer(scorer, trajectory.answer, trajectory.ground_truth, info)
        except UnscoredError as error:
            where = f"data_source {trajectory.data_source!r}, index {trajectory.info.get('index')!r}"
            raise UnscoredError(f"{where}: {error}") from error
        return Value(float(result["score"] if isinstance(result, dict) else result))
