"""`CustomReward`: a reward with `correctness` by the function of `reward.custom_reward_function`, outside training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_rl.concurrency import together
from agent_rl.errors import UnscoredError
from agent_rl.rewards.compose import Reward
from agent_rl.rewards.user_function import CUSTOM_FUNCTION, UserFunction
from agent_rl.settings import RewardSettings
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.trajectory import Score, Trajectory
from agent_rl.user_code import sort_out

__all__ = ["CustomReward", "configured_reward"]


def configured_reward(
    settings: RewardSettings, function: Mapping[str, Any] | None, *, max_response_tokens: int | None = None
) -> Reward:
    """The reward of a configuration outside training.

    Args:
        settings: the section `agent_rl.reward`.
        function: the keys of `reward.custom_reward_function`, which without a path mean nothing.
        max_response_tokens: see `Reward`.

    Raises:
        ConfigError: as `CustomReward`.
    """
    if function and function.get("path"):
        return CustomReward(settings, function, max_response_tokens=max_response_tokens)
    return Reward(settings, max_response_tokens=max_response_tokens)


class CustomReward(Reward):
    """Scores as training does with such a function.

    The function gets the text that it got in training where that was kept (`info["solution_str"]`), and otherwise the
    turns with what the environment answered. Numbers that it returns beside its score are not reported.

    Args:
        settings: the section `agent_rl.reward`.
        function: the keys of `reward.custom_reward_function`: path, name, reward_kwargs.
        max_response_tokens: see `Reward`.

    Raises:
        ConfigError: as `Reward`, or the function cannot be loaded or called.
    """

    def __init__(
        self, settings: RewardSettings, function: Mapping[str, Any], *, max_response_tokens: int | None = None
    ) -> None:
        super().__init__(settings, max_response_tokens=max_response_tokens, judged=True)
        place, name = Place(f"{CUSTOM_FUNCTION}.path"), function.get("name") or "compute_score"
        path = str(function["path"]).removeprefix("pkg://").removeprefix("file://")  # as verl has them
        found = find_object(f"{path}:{name}", place, Path.cwd())
        self._function = UserFunction(found, place, options=function.get("reward_kwargs"))
        self._stops = settings.on_error == "stop"

    def require_scorers(self, data_sources: Iterable[str]) -> None:
        """Nothing: the function scores every data source."""

    async def score_group(
        self, group: Sequence[Trajectory], *, verdicts: Sequence[float | None] | None = None
    ) -> list[Score | Exception]:
        """As `Reward.score_group`; the function is asked where no verdict is given."""
        given = verdicts or [None] * len(group)
        found = await together([self._verdict(*each) for each in zip(group, given, strict=True)])
        usable = [(each, one) for each, one in zip(group, found, strict=True) if not isinstance(one, Exception)]
        scores = iter(await super().score_group([each for each, _ in usable], verdicts=[one for _, one in usable]))
        return [one if isinstance(one, Exception) else next(scores) for one in found]

    async def _verdict(self, trajectory: Trajectory, verdict: float | None) -> float | UnscoredError:
        if verdict is not None:
            return verdict
        text = trajectory.info.get("solution_str") or _text(trajectory)
        try:
            return (await self._function.judge(trajectory, text))[0]
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises, sorted there
            return sort_out(CUSTOM_FUNCTION, error, stops=self._stops, remedy=f"The trajectory is {trajectory.id!r}")


def _text(trajectory: Trajectory) -> str:
    """The response as text: turns and observations."""
    return "\n".join(part for turn in trajectory.turns for part in (turn.text, turn.observation) if part)
