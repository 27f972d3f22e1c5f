"""`consistency`: the share of a prompt's samples that give an equivalent answer (majority voting as a reward).

    components:
      agreement:
        kind: consistency
        config: {scorer: math}      # any scorer's name; `auto`: that of the data source

No ground truth is needed: the answer of one sample is the ground truth for another. The majority may be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_rl.rewards.component import ComponentConfig, GroupComponent, Value
from agent_rl.rewards.routing import find_scorer, route
from agent_rl.rewards.scorers import GroundTruthError, Scorer, score_answer
from agent_rl.rewards.user_function import scorer_info
from agent_rl.trajectory import Trajectory

__all__ = ["Consistency", "ConsistencyConfig"]


class ConsistencyConfig(ComponentConfig):
    """How answers are compared."""

    scorer: str = "auto"
    """A scorer's name, `package.module.function` or `file.py:function`; `auto`: by the data source."""


class Consistency(GroupComponent, kind="consistency"):
    """The share of the group that gives an equivalent answer, itself included; 0 without an answer."""

    Config = ConsistencyConfig
    logs = ("answers",)

    def __init__(self, name: str, config: ConsistencyConfig) -> None:
        super().__init__(name, config)
        key = f"agent_rl.reward.components.{name}.config.scorer"
        self._scorer = None if config.scorer == "auto" else find_scorer(config.scorer, key=key)

    async def measure_group(self, group: Sequence[Trajectory]) -> list[Value | Exception]:
        """The share of each; `logged["answers"]` is the number of different answers in the group.

        Raises:
            UnscoredError: the scorer failed.
        """
        answered = [trajectory for trajectory in group if trajectory.answer is not None]
        members: list[list[Trajectory]] = []
        for trajectory in answered:
            for same in members:
                if await self._same(trajectory, same[0]):
                    same.append(trajectory)
                    break
            else:
                members.append([trajectory])
        sizes = {id(trajectory): len(same) for same in members for trajectory in same}
        logged = {"answers": float(len(members))}
        return [Value(sizes.get(id(trajectory), 0) / len(group), logged) for trajectory in group]

    async def _same(self, one: Trajectory, other: Trajectory) -> bool:
        if one.answer == other.answer:
            return True
        return await self._fits(one, other) or await self._fits(other, one)

    async def _fits(self, answer: Trajectory, truth: Trajectory) -> bool:
        scorer: Scorer = self._scorer or route(answer.data_source)
        try:
            result = await score_answer(scorer, answer.answer, truth.answer, scorer_info(answer))
        except GroundTruthError:  # not usable as a ground truth: "I do not know" in place of a number
            return False
        score = result["score"] if isinstance(result, dict) else result
        return float(score) >= 1.0
