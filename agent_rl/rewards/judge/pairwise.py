"""`PairwiseJudge`: a component in which an LLM compares the trajectories of one prompt, two at a time.

    components:
      better:
        kind: pairwise_judge
        config:
          url: http://localhost:30000
          model: Qwen/Qwen3-32B
          pairs: round_robin           # or all

The judge sees every pair in both orders; if its verdict depends on the order, the pair is a tie. Equal answers are a
tie, and are not sent to the judge. A pair without a verdict is skipped; a trajectory without any judged pair is
unscored. Values range from 0 to 1 (0.5 for a single trajectory), and rank only trajectories of the same prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean

from pydantic import Field

from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import GroupComponent, Value
from agent_rl.rewards.judge.fence import Fence
from agent_rl.rewards.judge.panel import Ballot, Panel, PanelConfig
from agent_rl.rewards.judge.prompt import Question
from agent_rl.rewards.judge.tournament import Pair, Scheme, bradley_terry, pairs_of
from agent_rl.rewards.judge.verdict import POINTS, pair_form
from agent_rl.rewards.rm_prompt import with_judge_prompt
from agent_rl.trajectory import Trajectory
from agent_rl.work.concurrency import together

LOGS = ("pairs", "failures", "disagreement", "calls", "tokens", "cache_hits")
FORM = pair_form()


class PairwiseJudgeConfig(PanelConfig):
    """The `config` of a component of kind `pairwise_judge`."""

    pairs: Scheme = "all"
    """Which pairs of n trajectories to compare: `all` has n (n - 1) / 2 pairs, `round_robin` n * opponents / 2."""
    opponents: int = Field(default=4, ge=1)
    """Number of opponents per trajectory in a `round_robin`; an odd number is rounded up."""
    swap: bool = True
    """Whether a pair is judged in both orders; false halves the calls, but the order can then bias the verdict."""


@dataclass(slots=True)
class _Match:
    """The comparison of two samples in a group."""

    pair: Pair
    ballot: Ballot = field(default_factory=Ballot)
    points: float | None = None
    """Points of the pair's first sample; None means that a verdict is missing."""
    contradicted: bool = False
    """Whether the verdicts on the two orders of the pair contradict each other."""
    problem: UnscoredError | None = None


class PairwiseJudge(GroupComponent, kind="pairwise_judge"):
    """Compares the trajectories of one prompt, two at a time.

    Raises:
        ConfigError: the API key, the template or the cache file cannot be used.
    """

    Config = PairwiseJudgeConfig
    logs = LOGS
    config: PairwiseJudgeConfig

    def __init__(self, name: str, config: PairwiseJudgeConfig) -> None:
        super().__init__(name, config)
        self.panel = Panel(config, f"agent_rl.reward.components.{name}.config", "pairwise")

    async def reach(self) -> None:
        """Check the endpoint, the API key and the model by requesting the endpoint's list of models."""
        await self.panel.client.check()

    async def measure_group(self, group: Sequence[Trajectory]) -> list[Value | Exception]:
        """Return each trajectory's value, from 0 to 1, or an `UnscoredError` if all its comparisons failed.

        Raises:
            ConfigError: the endpoint rejects the API key, or has no such address or model.
        """
        config = self.config
        if len(group) == 1:
            return [Value(0.5, dict.fromkeys(LOGS, 0.0))]
        group = [with_judge_prompt(trajectory, self.name) for trajectory in group]
        matches = [_Match(pair) for pair in pairs_of(config.pairs, len(group), opponents=config.opponents)]
        await together([self._play(group, match) for match in matches])
        games = [(*match.pair, match.points) for match in matches if match.points is not None]
        values = bradley_terry(games, len(group))
        return [_value([match for match in matches if at in match.pair], at, value) for at, value in enumerate(values)]

    async def _play(self, group: Sequence[Trajectory], match: _Match) -> None:
        """Compare one pair, in both orders if the `swap` setting is on."""
        one, other = (group[at] for at in match.pair)
        points = [0.5]
        if self._texts(one) != self._texts(other):
            orders = [(one, other), (other, one)] if self.config.swap else [(one, other)]
            requests = (self._ask(*order, match.ballot) for order in orders)
            results = await asyncio.gather(*requests, return_exceptions=True)  # the cost counts even if one fails
            for result in results:
                if isinstance(result, UnscoredError):
                    match.problem = result
                    return
                if isinstance(result, BaseException):
                    raise result
            points = [result for result in results if isinstance(result, float)]
        match.contradicted = len({points[0], *(1.0 - value for value in points[1:])}) > 1
        match.points = 0.5 if match.contradicted else points[0]

    async def _ask(self, first: Trajectory, second: Trajectory, ballot: Ballot) -> float:
        """Return the points that a majority vote gives the first trajectory against the second."""
        verdicts = await self.panel.ask(Question(FORM, (first, second), self.config.max_chars), ballot)
        average = mean(POINTS[vote.winner] for vote in verdicts)
        return 1.0 if average > 0.5 else 0.0 if average < 0.5 else 0.5

    def _texts(self, trajectory: Trajectory) -> dict[str, str]:
        """Return what the judge would see if this trajectory were both A and B."""
        return self.panel.template.values(Question(FORM, (trajectory, trajectory), self.config.max_chars), Fence(""))


def _value(matches: Sequence[_Match], at: int, value: float | None) -> Value | Exception:
    """Return a trajectory's value and the logged numbers of its pairs."""
    if value is None:
        problem = next((match.problem for match in reversed(matches) if match.problem), "no pair was compared")
        return UnscoredError(f"no comparison succeeded: {problem}")
    played = [(match, match.points) for match in matches if match.points is not None]
    # Each trajectory is charged half the cost of its pairs, so that the sum over a batch is the total cost.
    logged = {name: sum(getattr(match.ballot, name, 0) for match in matches) / 2 for name in LOGS}
    contradicted = sum(match.contradicted for match, _ in played)
    logged |= {"pairs": float(len(played)), "disagreement": contradicted / len(played)}
    notes = [
        {
            "against": sum(match.pair) - at,
            "points": points if match.pair[0] == at else 1.0 - points,
            "reasons": [vote.reason for vote in match.ballot.verdicts],
        }
        for match, points in played
    ]
    return Value(value, logged, {"pairs": notes})
