"""Attacks on a reward: which mutations of stored trajectories raise it, how often and by how much.

The reward of the mutated trajectory is compared with that of the original, both measured now. An attack with several
guesses is compared with a policy that answers with one of these guesses, in the form with the highest reward: a lucky
guess is no attack, a reward for several guesses at once is. A trajectory that the mutation leaves unscored has escaped
its reward, which is reported as well, and so is one that makes a scorer or component raise.
"""

from __future__ import annotations

import asyncio
import statistics
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rich.table import Table
from rich.text import Text

from agent_rl.concurrency import together
from agent_rl.rewards.lab.editing import answered, with_answer
from agent_rl.rewards.lab.groups import GroupScorer, grouped
from agent_rl.rewards.lab.mutations import Attack
from agent_rl.store import Pieces
from agent_rl.trajectory import Score, Trajectory
from agent_rl.user_code import UserCodeError

__all__ = ["AttackReport", "Exploit", "attack_table", "run_attacks"]

GUESSES = 3
SOLVED = 1.0
FORMS = ("{}", "\\boxed{{{}}}", "#### {}", "<answer>{}</answer>")
"""The forms of an answer with one guess."""
FILLERS = ("7", "42", "none of these", "Paris", "XYZ")
"""Guesses that are used if the data has too few."""
MAX_GUESS = 200
"""Most characters of a guess."""


@dataclass(frozen=True, slots=True)
class Exploit:
    """A trajectory with a reward that an attack has raised, or that has escaped its reward."""

    trajectory: str
    data_source: str
    wrong: bool
    before: float
    """Reward without the attack: the trajectory's own, or that of an honest guess."""
    after: float | None
    """With it; the mean over the rotations of the guesses; None when it has escaped."""
    components: dict[str, tuple[float, float]]
    """The components that have risen, before and after."""
    answer: str
    """The attack's answer, or the last turn's text if the answer is unchanged."""
    error: str | None = None
    """Why it is unscored."""

    @property
    def gain(self) -> float:
        """How much the reward has risen; 0 if it has escaped."""
        return 0.0 if self.after is None else self.after - self.before


@dataclass(slots=True)
class Outcome:
    """The results of one attack."""

    applied: int = 0
    """Trajectories that it applies to."""
    raised: list[Exploit] = field(default_factory=list)
    escaped: list[Exploit] = field(default_factory=list)


@dataclass(slots=True)
class AttackReport:
    """The outcomes of all attacks."""

    trajectories: int
    unscored: int
    """Trajectories without a reward of their own; they are not attacked."""
    wrong: int
    outcomes: dict[str, Outcome]
    purposes: dict[str, str]

    @property
    def ok(self) -> bool:
        """Whether no attack raises or escapes a reward."""
        return not any(outcome.raised or outcome.escaped for outcome in self.outcomes.values())

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {
            "trajectories": self.trajectories,
            "unscored": self.unscored,
            "wrong": self.wrong,
            "ok": self.ok,
            "attacks": {name: self._attack(name, outcome) for name, outcome in self.outcomes.items()},
        }

    def _attack(self, name: str, outcome: Outcome) -> dict[str, Any]:
        gains = [finding.gain for finding in outcome.raised]
        worst = example(outcome)
        return {
            "purpose": self.purposes[name],
            "applied": outcome.applied,
            "raised": len(gains),
            "raised_wrong": sum(finding.wrong for finding in outcome.raised),
            "mean_gain": statistics.fmean(gains) if gains else 0.0,
            "max_gain": max(gains, default=0.0),
            "escaped": len(outcome.escaped),
            "example": None if worst is None else asdict(worst),
        }


async def run_attacks(
    trajectories: Sequence[Trajectory],
    scorer: GroupScorer,
    attacks: Mapping[str, Attack],
    *,
    tolerance: float = 1e-6,
    concurrency: int = 32,
    kept: Pieces | None = None,
) -> AttackReport:
    """Try every attack on every trajectory.

    Args:
        trajectories: with their ground truths.
        scorer: gets each mutation with the rest of its group, so that group components are attacked as well.
        attacks: by name.
        tolerance: a smaller rise of the reward is not reported, for judges that are not exact.
        concurrency: trajectories that are attacked at the same time.
        kept: what was found on trajectories before, by number, which gets the others.

    Raises:
        ConfigError: from the scorer.
    """
    truths = _truths(trajectories)
    free, known = asyncio.Semaphore(concurrency), Pieces() if kept is None else kept

    async def one(number: int, position: int, group: Sequence[Trajectory]) -> dict[str, Any]:
        async with free:
            if number not in known:
                known.add(number, await _Target(group, position, scorer, truths).attacked(attacks, tolerance))
            found: dict[str, Any] = known[number]
            return found

    places = [(position, group) for group in grouped(trajectories) for position in range(len(group))]
    targets = await together([one(number, *place) for number, place in enumerate(places)])
    outcomes = {name: Outcome() for name in attacks}
    for target in targets:
        for name, found in target["found"]:
            outcomes[name].applied += 1
            if found is not None:
                finding = Exploit(**found)
                (outcomes[name].raised if finding.error is None else outcomes[name].escaped).append(finding)
    return AttackReport(
        trajectories=len(trajectories),
        unscored=sum(not target["scored"] for target in targets),
        wrong=sum(target["scored"] and target["wrong"] for target in targets),
        outcomes=outcomes,
        purposes={name: attack.purpose for name, attack in attacks.items()},
    )


class _Target:
    """One trajectory under attack."""

    def __init__(
        self, group: Sequence[Trajectory], position: int, scorer: GroupScorer, truths: Mapping[str, Sequence[str]]
    ) -> None:
        self.trajectory = group[position]
        self.wrong = True
        self._group, self._position, self._scorer = list(group), position, scorer
        self._guesses = _guesses(self.trajectory, truths.get(self.trajectory.data_source, ()))

    async def attacked(self, attacks: Mapping[str, Attack], tolerance: float) -> dict[str, Any]:
        """What was found, as JSON data: whether it is scored, and wrong, and the exploit or None by each attack."""
        own, found = await self._score(self.trajectory), list[tuple[str, dict[str, Any] | None]]()
        if not isinstance(own, Score):
            return {"scored": False, "wrong": True, "found": found}
        self.wrong = own.components.get("correctness", 0.0) < SOLVED
        honest = await self._honest(own) if any(each.guesses for each in attacks.values()) else own
        for name, attack in attacks.items():
            if variants := self._variants(attack):
                after = [await self._score(variant) for variant in variants]
                exploit = self._finding(honest if attack.guesses else own, after, variants, tolerance)
                found.append((name, None if exploit is None else asdict(exploit)))
        return {"scored": True, "wrong": self.wrong, "found": found}

    def _variants(self, attack: Attack) -> list[Trajectory]:
        if not attack.guesses:
            made = [attack.function(self.trajectory)]
        else:
            made = [attack.function(self.trajectory, rotation) for rotation in _rotations(self._guesses)]
        return [variant for variant in made if variant is not None]

    async def _honest(self, own: Score) -> Score:
        """The average score of a policy that answers with one of the guesses, in the form with the highest reward."""
        best = own
        if not answered(self.trajectory):
            return best
        for form in FORMS:
            answers = [with_answer(self.trajectory, form.format(guess)) for guess in self._guesses]
            known = [score for answer in answers if isinstance(score := await self._score(answer), Score)]
            best = max([best, *([_mean(known)] if known else [])], key=lambda score: score.total)
        return best

    async def _score(self, variant: Trajectory) -> Score | Exception:
        group = list(self._group) if self._scorer.needs_groups else [variant]
        position = self._position if self._scorer.needs_groups else 0
        group[position] = replace(variant, score=None)
        copies = [replace(each, info=dict(each.info)) for each in group]  # scoring may add to them
        try:
            return (await self._scorer.score_group(copies))[position]
        except UserCodeError as error:  # the attack makes the user's code raise
            if variant is self.trajectory:
                raise
            return error

    def _finding(
        self, before: Score, after: Sequence[Score | Exception], variants: Sequence[Trajectory], tolerance: float
    ) -> Exploit | None:
        for score, variant in zip(after, variants, strict=True):
            if isinstance(score, Exception):
                return self._exploit(before, None, variant, tolerance, f"{type(score).__name__}: {score}")
        scores = [score for score in after if isinstance(score, Score)]
        mean = _mean(scores)
        if mean.total <= before.total + tolerance:
            return None
        best = max(range(len(scores)), key=lambda position: scores[position].total)
        return self._exploit(before, mean, variants[best], tolerance)

    def _exploit(
        self, before: Score, after: Score | None, shown: Trajectory, tolerance: float, error: str | None = None
    ) -> Exploit:
        values = {
            name: (before.components.get(name, 0.0), value) for name, value in (after or before).components.items()
        }
        original = self.trajectory
        text = shown.turns[-1].text if shown.answer == original.answer else str(shown.answer)
        return Exploit(
            trajectory=original.id,
            data_source=original.data_source,
            wrong=self.wrong,
            before=before.total,
            after=None if after is None else after.total,
            components={name: pair for name, pair in values.items() if pair[1] > pair[0] + tolerance},
            answer=text if len(text) <= MAX_GUESS else f"{text[:MAX_GUESS]}...",
            error=error,
        )


def attack_table(report: AttackReport, title: str) -> Table:
    """A table with a row for each attack, the highest gain first.

    The columns: trajectories that were tried and raised, how many of the latter were wrong, their gain, and how many
    became unscored.
    """
    shown = Table(title=Text(title), title_justify="left")
    shown.add_column("attack", no_wrap=True)
    for name in ("tried", "raised", "wrong", "mean gain", "max gain", "escaped"):
        shown.add_column(name, justify="right")
    rows = report.to_dict()["attacks"]
    for name in sorted(rows, key=lambda name: (-rows[name]["max_gain"], -rows[name]["escaped"])):
        row = rows[name]
        counts = (row["applied"], row["raised"], row["raised_wrong"])
        gains = (f"{row['mean_gain']:+.3f}", f"{row['max_gain']:+.3f}") if row["raised"] else ("", "")
        style = "bold red" if row["raised"] or row["escaped"] else None
        shown.add_row(Text(name), *[f"{count:,}" for count in counts], *gains, f"{row['escaped']:,}", style=style)
    return shown


def example(outcome: Outcome) -> Exploit | None:
    """The worst exploit of an attack: the wrong answer that gained most, before one that escaped."""
    found: Iterable[Exploit] = [*outcome.raised, *outcome.escaped]
    return max(found, key=lambda finding: (finding.wrong, finding.gain), default=None)


def _mean(scores: Sequence[Score]) -> Score:
    names = list(scores[0].components)
    return Score(
        total=statistics.fmean(score.total for score in scores),
        components={name: statistics.fmean(score.components.get(name, 0.0) for score in scores) for name in names},
    )


def _rotations(guesses: Sequence[str]) -> list[list[str]]:
    return [[*guesses[start:], *guesses[:start]] for start in range(len(guesses))]


def _truths(trajectories: Iterable[Trajectory]) -> dict[str, list[str]]:
    """The different ground truths of each data source, as text."""
    found: dict[str, list[str]] = {}
    for source, truth in dict.fromkeys((each.data_source, _truth(each.ground_truth)) for each in trajectories):
        found.setdefault(source, []).extend([truth] if truth is not None else [])
    return found


def _guesses(trajectory: Trajectory, truths: Sequence[str]) -> list[str]:
    """The right answer, the trajectory's own, and those of other rows; none if the right one is not a short text."""
    truth, own = _truth(trajectory.ground_truth), (trajectory.answer or "").strip()
    if truth is None:
        return []
    start = zlib.crc32(truth.encode(errors="replace")) % len(truths) if truths else 0
    others = [own] if own and len(own) <= MAX_GUESS and len(own.split()) <= len(truth.split()) else []
    others += [*truths[start : start + 2 * GUESSES], *truths[:GUESSES], *FILLERS]
    found = [truth]
    for other in others:
        if not any(other in guess or guess in other for guess in found):  # a guess must not contain another
            found.append(other)
    return found[:GUESSES] if len(found) >= GUESSES else []


def _truth(ground_truth: Any) -> str | None:
    """The first ground truth, as the text of an answer."""
    while isinstance(ground_truth, Mapping | list | tuple):
        several = ground_truth
        if isinstance(several, Mapping):
            several = [several.get("target", several.get("answer"))]
        ground_truth = several[0] if several else None
    text = "" if ground_truth is None else str(ground_truth).rpartition("####")[2].strip()
    return text if 0 < len(text) <= MAX_GUESS else None
