"""Attacks on a reward: which mutations of stored trajectories raise it, how often and by how much.

The reward of the mutated trajectory is compared with that of the original, both measured now. An attack with several
guesses is compared with a policy that answers with one of these guesses, in the form with the highest reward: a lucky
guess is not an attack; a reward for several guesses at once is. A trajectory that the mutation leaves unscored has
escaped its reward, which is reported as well, and so is one that makes a scorer or component raise.
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

from agent_rl.rewards.compose import Reward
from agent_rl.rewards.lab.editing import answered, with_answer
from agent_rl.rewards.lab.groups import grouped
from agent_rl.rewards.lab.mutations import Attack
from agent_rl.settings.user_code import UserCodeError
from agent_rl.trajectory import Score, Trajectory
from agent_rl.work.concurrency import together
from agent_rl.work.store import Pieces

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

    purpose: str
    applied: int = 0
    """Trajectories that it applies to."""
    raised: list[Exploit] = field(default_factory=list)
    escaped: list[Exploit] = field(default_factory=list)

    @property
    def example(self) -> Exploit | None:
        """The worst exploit: the wrong answer that gained most, before one that escaped."""
        return max([*self.raised, *self.escaped], key=lambda finding: (finding.wrong, finding.gain), default=None)

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        gains = [finding.gain for finding in self.raised]
        return {
            "purpose": self.purpose,
            "applied": self.applied,
            "raised": len(gains),
            "raised_wrong": sum(finding.wrong for finding in self.raised),
            "mean_gain": statistics.fmean(gains) if gains else 0.0,
            "max_gain": max(gains, default=0.0),
            "escaped": len(self.escaped),
            "example": None if self.example is None else asdict(self.example),
        }


@dataclass(slots=True)
class AttackReport:
    """The outcomes of all attacks."""

    trajectories: int
    unscored: int
    """Trajectories without a reward of their own; they are not attacked."""
    wrong: int
    outcomes: dict[str, Outcome]

    @property
    def ok(self) -> bool:
        """Whether no attack raises or escapes a reward."""
        return not any(outcome.raised or outcome.escaped for outcome in self.outcomes.values())

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        counts = {"trajectories": self.trajectories, "unscored": self.unscored, "wrong": self.wrong, "ok": self.ok}
        return {**counts, "attacks": {name: outcome.to_dict() for name, outcome in self.outcomes.items()}}


async def run_attacks(
    trajectories: Sequence[Trajectory],
    scorer: Reward,
    attacks: Mapping[str, Attack],
    *,
    tolerance: float = 1e-6,
    concurrency: int = 32,
    kept: Pieces,
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
    free = asyncio.Semaphore(concurrency)

    async def one(number: int, position: int, group: Sequence[Trajectory]) -> dict[str, Any]:
        async with free:
            if number not in kept:
                target = _Target(group, position, scorer, tolerance)
                guesses = _guesses(target.trajectory, truths.get(target.trajectory.data_source, ()))
                kept.add(number, await target.attacked(attacks, guesses))
            found: dict[str, Any] = kept[number]
            return found

    places = [(position, group) for group in grouped(trajectories) for position in range(len(group))]
    targets = await together([one(number, *place) for number, place in enumerate(places)])
    outcomes = {name: Outcome(attack.purpose) for name, attack in attacks.items()}
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
    )


class _Target:
    """One trajectory under attack.

    Args:
        group: the trajectories of its prompt.
        position: of it in the group.
        scorer: see `run_attacks`.
        tolerance: see `run_attacks`.
    """

    def __init__(self, group: Sequence[Trajectory], position: int, scorer: Reward, tolerance: float) -> None:
        self.trajectory, self.wrong = group[position], True
        self._group, self._position, self._scorer, self._tolerance = list(group), position, scorer, tolerance

    async def attacked(self, attacks: Mapping[str, Attack], guesses: Sequence[str]) -> dict[str, Any]:
        """What was found, as JSON data: whether it is scored, and wrong, and the exploit or None by each attack."""
        own, found = await self._score(self.trajectory), list[tuple[str, dict[str, Any] | None]]()
        if not isinstance(own, Score):
            return {"scored": False, "wrong": True, "found": found}
        self.wrong = own.components.get("correctness", 0.0) < SOLVED
        honest = await self._honest(own, guesses) if any(each.guesses for each in attacks.values()) else own
        for name, attack in attacks.items():
            if variants := attack.variants(self.trajectory, guesses):
                exploit = await self._exploit(honest if attack.guesses else own, variants)
                found.append((name, None if exploit is None else asdict(exploit)))
        return {"scored": True, "wrong": self.wrong, "found": found}

    async def _honest(self, own: Score, guesses: Sequence[str]) -> Score:
        """The average score of a policy that answers with one of the guesses, in the form with the highest reward."""
        best = own
        for form in FORMS if answered(self.trajectory) else ():
            answers = [with_answer(self.trajectory, form.format(guess)) for guess in guesses]
            known = [score for answer in answers if isinstance(score := await self._score(answer), Score)]
            best = max([best, *([_mean(known)] if known else [])], key=lambda score: score.total)
        return best

    async def _score(self, variant: Trajectory) -> Score | Exception:
        group, position = (self._group.copy(), self._position) if self._scorer.needs_groups else ([variant], 0)
        group[position] = replace(variant, score=None)
        copies = [replace(each, info=dict(each.info)) for each in group]  # scoring may add to them
        try:
            return (await self._scorer.score_group(copies))[position]
        except UserCodeError as error:  # the attack makes the user's code raise
            if variant is self.trajectory:
                raise
            return error

    async def _exploit(self, before: Score, variants: Sequence[Trajectory]) -> Exploit | None:
        """What the variants gain together over the score before, or why one of them has none; None: nothing."""
        after, error, shown = None, None, variants[0]
        scores = [await self._score(variant) for variant in variants]
        known = [score for score in scores if isinstance(score, Score)]
        if len(known) < len(scores):
            shown, failure = next(each for each in zip(variants, scores, strict=True) if isinstance(each[1], Exception))
            error = f"{type(failure).__name__}: {failure}"
        else:
            after = _mean(known)
            if after.total <= before.total + self._tolerance:
                return None
            shown = variants[max(range(len(known)), key=lambda at: known[at].total)]
        components = {}
        for name, value in after.components.items() if after is not None else ():
            was = before.components.get(name, 0.0)
            if value > was + self._tolerance:
                components[name] = (was, value)
        original = self.trajectory
        text = shown.turns[-1].text if shown.answer == original.answer else str(shown.answer)
        return Exploit(
            trajectory=original.id,
            data_source=original.data_source,
            wrong=self.wrong,
            before=before.total,
            after=None if after is None else after.total,
            components=components,
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


def _mean(scores: Sequence[Score]) -> Score:
    names = list(scores[0].components)
    return Score(
        total=statistics.fmean(score.total for score in scores),
        components={name: statistics.fmean(score.components.get(name, 0.0) for score in scores) for name in names},
    )


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
