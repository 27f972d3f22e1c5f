"""`PairwiseJudge`: the trajectories of one prompt are compared with one another, two at a time.

    components:
      better:
        kind: pairwise_judge
        config:
          url: http://localhost:30000
          model: Qwen/Qwen3-32B
          pairs: swiss                 # all | round_robin | swiss | elimination
          score: bradley_terry         # or win_rate

The judge sees every pair in both orders, and where its word depends on the order it is a tie. Equal answers tie without
a question. A pair of which a verdict is missing is left out; a trajectory that none is left of is unscored. Values are
from 0 to 1 and say who is better within a group: they cannot be compared between prompts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import GroupComponent, Value
from agent_rl.rewards.judge import shown
from agent_rl.rewards.judge.fence import Fence
from agent_rl.rewards.judge.pairing import Pair, Scheme, scheduled
from agent_rl.rewards.judge.panel import Ballot, Panel, PanelConfig, Question
from agent_rl.rewards.judge.ranking import Game, bradley_terry, win_rates
from agent_rl.rewards.judge.template import load_template
from agent_rl.rewards.judge.verdict import PairVerdict, pair_form
from agent_rl.trajectory import Trajectory

__all__ = ["PairwiseJudge", "PairwiseJudgeConfig"]

PLACEHOLDERS = ("question", "reference", "answer_a", "answer_b", "transcript_a", "transcript_b")
NEEDED = (("answer_a", "transcript_a"), ("answer_b", "transcript_b"))
LOGS = ("pairs", "failures", "disagreement", "calls", "tokens", "cache_hits")
_POINTS = {"A": 1.0, "tie": 0.5, "B": 0.0}


class PairwiseJudgeConfig(PanelConfig):
    """`config` of a component of kind `pairwise_judge`."""

    pairs: Scheme = "all"
    """Who meets whom; of n trajectories, `all` makes n (n - 1) / 2 pairs, `elimination` n - 1."""
    opponents: int = Field(default=4, ge=1)
    """Of each in a `round_robin`; an odd number is rounded up."""
    rounds: int | None = Field(default=None, ge=1)
    """Of `swiss`; null: the logarithm of the group's size."""
    swap: bool = True
    """Whether a pair is judged in both orders; without it half as many calls, and the judge's taste for an order."""
    score: Literal["bradley_terry", "win_rate"] = "bradley_terry"
    alone: float = Field(default=0.5, ge=0, le=1)
    """The value of a trajectory that has no sibling to be compared with."""


@dataclass(slots=True)
class _Pairing:
    """What became of the pairs of one group."""

    games: list[Game] = field(default_factory=list)
    contradicted: set[Pair] = field(default_factory=set)
    """Pairs that each order decided otherwise."""
    spent: dict[Pair, Ballot] = field(default_factory=dict)
    problems: dict[int, Exception] = field(default_factory=dict)
    """The last problem of each trajectory."""


class PairwiseJudge(GroupComponent):
    """Asks about two trajectories at a time.

    Raises:
        ConfigError: the API key, the template or the cache's file cannot be used.
    """

    Config = PairwiseJudgeConfig
    logs = LOGS
    config: PairwiseJudgeConfig

    def __init__(self, name: str, config: PairwiseJudgeConfig) -> None:
        super().__init__(name, config)
        key = f"agent_rl.reward.components.{name}.config"
        self._template = load_template(config.template, "pairwise", f"{key}.template", PLACEHOLDERS, NEEDED)
        self._form = pair_form()
        self.panel = Panel(config, key)

    async def measure_group(self, group: Sequence[Trajectory]) -> list[Value | Exception]:
        """The values of a group, from 0 to 1; an `UnscoredError` for one of which no comparison is left.

        Raises:
            UnscoredError: the template asks for a ground truth and the row has none.
            ConfigError: the endpoint answers nobody.
        """
        if len(group) == 1:
            return [Value(self.config.alone, dict.fromkeys(LOGS, 0.0))]
        found = _Pairing()
        config = self.config
        schedule = scheduled(config.pairs, len(group), opponents=config.opponents, rounds=config.rounds)
        games: list[Game] = []
        try:
            pairs = next(schedule, [])
            while pairs:
                games = await self._round(group, pairs, found)
                found.games += games
                pairs = schedule.send(games)
        except StopIteration:
            pass
        rank = bradley_terry if config.score == "bradley_terry" else win_rates
        return [self._value(found, at, value) for at, value in enumerate(rank(found.games, len(group)))]

    async def close(self) -> None:
        """Let go of the cache's file."""
        self.panel.close()

    async def _round(self, group: Sequence[Trajectory], pairs: Sequence[Pair], found: _Pairing) -> list[Game]:
        played = await asyncio.gather(*(self._play(group, pair, found) for pair in pairs), return_exceptions=True)
        games = []
        for pair, game in zip(pairs, played, strict=True):
            if isinstance(game, Game):
                games.append(game)
            elif isinstance(game, UnscoredError):
                found.problems |= dict.fromkeys(pair, game)
            else:
                raise game
        return games

    async def _play(self, group: Sequence[Trajectory], pair: Pair, found: _Pairing) -> Game:
        """One pair, in both orders.

        Raises:
            UnscoredError: a verdict is missing.
        """
        ballot = found.spent[pair] = Ballot()
        one, other = (group[at] for at in pair)
        if self._shown(one) == self._shown(other):
            return Game(*pair, 0.5)
        asked = [self._ask(one, other, ballot), *([self._ask(other, one, ballot)] if self.config.swap else [])]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        points = [score for score in answers if isinstance(score, float)]
        scores = [points[0], *(1.0 - score for score in points[1:])]
        if len(set(scores)) > 1:
            found.contradicted.add(pair)
            return Game(*pair, 0.5)
        return Game(*pair, scores[0])

    async def _ask(self, first: Trajectory, second: Trajectory, ballot: Ballot) -> float:
        """The first's points in one order: what most votes say."""
        votes = (await self.panel.ask(self._question(first, second), ballot)).verdicts
        mean = sum(_POINTS[vote.winner] for vote in votes if isinstance(vote, PairVerdict)) / len(votes)
        return 1.0 if mean > 0.5 else 0.0 if mean < 0.5 else 0.5

    def _question(self, first: Trajectory, second: Trajectory) -> Question:
        names, limit = self._template.names, self.config.max_chars
        if "reference" in names and first.ground_truth is None:
            raise UnscoredError(f"row {first.info.get('index')!r} has no ground truth to show the judge")

        def values(fence: Fence) -> dict[str, str]:
            fill = {
                "question": lambda: shown.question(first, fence, limit),
                "reference": lambda: fence.around("reference", shown.reference(first, limit)),
                "answer_a": lambda: fence.around("answer A", shown.answer(first, limit)),
                "answer_b": lambda: fence.around("answer B", shown.answer(second, limit)),
                "transcript_a": lambda: shown.transcript(first, fence, limit, " of A"),
                "transcript_b": lambda: shown.transcript(second, fence, limit, " of B"),
            }
            return {name: fill[name]() for name in names}

        return Question(self._template, values, self._form)

    def _shown(self, trajectory: Trajectory) -> str:
        """What the judge sees of a trajectory, whichever it is of the two."""
        parts = []
        if "answer_a" in self._template.names:
            parts.append(shown.answer(trajectory, self.config.max_chars))
        if "transcript_a" in self._template.names:
            parts.append(shown.transcript(trajectory, Fence(""), self.config.max_chars))
        return "\n".join(parts)

    def _value(self, found: _Pairing, at: int, value: float | None) -> Value | Exception:
        if value is None:
            return UnscoredError(f"no comparison is left: {found.problems.get(at, 'none was made')}")
        mine = [pair for pair in found.spent if at in pair]
        total = Ballot()
        for pair in mine:
            total.add(found.spent[pair])
        points = {sum((game.first, game.second)) - at: game.points_of(at) for game in found.games if game.has(at)}
        contradicted = sum(pair in found.contradicted for pair in mine)
        # Each of the two bears half of what a pair costs, so that the sum over a batch is what was spent.
        halves = (total.calls / 2, total.tokens / 2, total.cache_hits / 2)
        numbers = (len(points), total.failures / 2, contradicted / len(points), *halves)
        notes = [
            {
                "against": other,
                "points": score,
                "reasons": [vote.reason for vote in found.spent[_pair(at, other)].verdicts],
            }
            for other, score in points.items()
        ]
        return Value(value, {name: float(number) for name, number in zip(LOGS, numbers, strict=True)}, {"pairs": notes})


def _pair(one: int, other: int) -> Pair:
    return (one, other) if one < other else (other, one)
