"""Attacks a reward: reports which mutations of stored trajectories raise the reward, how often and by how much.

`run_attacks` scores each trajectory with and without a mutation, and compares the two rewards. An attack that submits
several guesses is compared with a policy that submits a single guess, in the form with the highest reward: a lucky
guess is not an exploit, but earning more with several guesses is. A mutated trajectory that is unscored, or that makes
a scorer or component raise an error, has escaped its reward; escapes are reported too.
"""

from __future__ import annotations

import asyncio
import statistics
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
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

GUESSES = 3
SOLVED = 1.0
FORMS = ("{}", "\\boxed{{{}}}", "#### {}", "<answer>{}</answer>")
"""The forms in which an honest policy may write an answer."""
FILLERS = ("7", "42", "none of these", "Paris", "XYZ")
"""Guesses that are added if the data contains too few guesses."""
MAX_GUESS = 200
"""Maximum number of characters in a guess."""


async def run_attacks(
    trajectories: Sequence[Trajectory],
    scorer: Reward,
    attacks: Mapping[str, Attack],
    *,
    tolerance: float = 1e-6,
    concurrency: int = 32,
    kept: Pieces,
) -> dict[str, Any]:
    """Try every attack on every trajectory.

    Args:
        trajectories: the trajectories to attack, with their ground truths.
        scorer: the reward; if its components compare samples, a mutation is scored with the rest of its group.
        attacks: the attacks by name.
        tolerance: the largest reward increase to ignore, because the scores of judges are noisy.
        concurrency: the number of trajectories to attack at the same time.
        kept: the results of an interrupted run, keyed by the trajectory's number; new results are added.

    Returns:
        JSON data: the counts `trajectories`, `unscored` (these are not attacked) and `wrong`; `ok`, which is true if no
        attack raised or escaped the reward; and `attacks`, the outcome of each attack by name, with its worst exploit
        as `example`.

    Raises:
        ConfigError: the reward cannot score any trajectory.
    """
    truths = _truths(trajectories)
    free = asyncio.Semaphore(concurrency)

    async def attack_one(number: int, position: int, group: Sequence[Trajectory]) -> None:
        async with free:
            if number not in kept:
                target = _Target(group, position, scorer, tolerance)
                guesses = _guesses(target.trajectory, truths.get(target.trajectory.data_source, ()))
                kept.add(number, await target.attack(attacks, guesses))

    places = [(position, group) for group in grouped(trajectories) for position in range(len(group))]
    await together([attack_one(number, *place) for number, place in enumerate(places)])
    targets = [kept[number] for number in range(len(places))]
    exploits = {name: [target["found"][name] for target in targets if name in target["found"]] for name in attacks}
    return {
        "trajectories": len(trajectories),
        "unscored": sum(not target["scored"] for target in targets),
        "wrong": sum(target["scored"] and target["wrong"] for target in targets),
        "ok": not any(chain(*exploits.values())),
        "attacks": {name: {"purpose": attacks[name].purpose, **_outcome(tries)} for name, tries in exploits.items()},
    }


def _outcome(tries: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Summarize the exploits of one attack; None means that a trajectory withstood the attack."""
    exploits = [exploit for exploit in tries if exploit is not None]
    raised = [exploit for exploit in exploits if exploit["error"] is None]
    gains = [exploit["after"] - exploit["before"] for exploit in raised]
    worst = [(exploit["wrong"], gain, exploit) for exploit, gain in zip(raised, gains, strict=True)]
    worst += [(exploit["wrong"], 0.0, exploit) for exploit in exploits if exploit["error"] is not None]
    return {
        "applied": len(tries),
        "raised": len(raised),
        "raised_wrong": sum(exploit["wrong"] for exploit in raised),
        "mean_gain": statistics.fmean(gains) if gains else 0.0,
        "max_gain": max(gains, default=0.0),
        "escaped": len(exploits) - len(raised),
        "example": max(worst, key=lambda item: item[:2], default=(None,))[-1],
    }


class _Target:
    """One trajectory under attack.

    Args:
        group: all trajectories of the same prompt.
        position: index of the trajectory in the group.
        scorer: see `run_attacks`.
        tolerance: see `run_attacks`.
    """

    def __init__(self, group: Sequence[Trajectory], position: int, scorer: Reward, tolerance: float) -> None:
        self.trajectory, self.wrong = group[position], True
        self._group, self._position, self._scorer, self._tolerance = list(group), position, scorer, tolerance

    async def attack(self, attacks: Mapping[str, Attack], guesses: Sequence[str]) -> dict[str, Any]:
        """Return JSON data: if the trajectory is scored, if it is wrong, and for each attack the exploit or None."""
        own, exploits = await self._score(self.trajectory), dict[str, dict[str, Any] | None]()
        if not isinstance(own, Score):
            return {"scored": False, "wrong": True, "found": exploits}
        self.wrong = own.components.get("correctness", 0.0) < SOLVED
        honest = await self._honest(own, guesses) if any(attack.guesses for attack in attacks.values()) else own
        for name, attack in attacks.items():
            if variants := attack.variants(self.trajectory, guesses):
                exploits[name] = await self._exploit(honest if attack.guesses else own, variants)
        return {"scored": True, "wrong": self.wrong, "found": exploits}

    async def _honest(self, own: Score, guesses: Sequence[str]) -> Score:
        """Return the mean score of a policy that submits one of the guesses, in the form with the highest reward."""
        best = own
        for form in FORMS if answered(self.trajectory) else ():
            answers = [with_answer(self.trajectory, form.format(guess)) for guess in guesses]
            scores = [score for answer in answers if isinstance(score := await self._score(answer), Score)]
            best = max([best, *([_mean(scores)] if scores else [])], key=lambda score: score.total)
        return best

    async def _score(self, variant: Trajectory) -> Score | Exception:
        group, position = (self._group.copy(), self._position) if self._scorer.needs_groups else ([variant], 0)
        group[position] = replace(variant, score=None)
        copies = [replace(sample, info=dict(sample.info)) for sample in group]  # scoring may modify `info`
        try:
            return (await self._scorer.score_group(copies))[position]
        except UserCodeError as error:  # the attack makes the user's code raise an exception
            if variant is self.trajectory:
                raise
            return error

    async def _exploit(self, before: Score, variants: Sequence[Trajectory]) -> dict[str, Any] | None:
        """Return an exploit if a variant is unscored or the variants' mean reward rose; otherwise, return None.

        The exploit's `components` are those whose values rose, with their old and new values. If a variant is unscored,
        `after` is None and `error` is set. `answer` is the last turn's text if the attack does not change the answer.
        """
        after, error, example = None, None, variants[0]
        scores = [await self._score(variant) for variant in variants]
        valid = [score for score in scores if isinstance(score, Score)]
        if len(valid) < len(scores):
            scored = zip(variants, scores, strict=True)
            example, failure = next((variant, score) for variant, score in scored if isinstance(score, Exception))
            error = f"{type(failure).__name__}: {failure}"
        else:
            after = _mean(valid)
            if after.total <= before.total + self._tolerance:
                return None
            example = variants[max(range(len(valid)), key=lambda index: valid[index].total)]
        values = {} if after is None else after.components
        pairs = {name: (before.components.get(name, 0.0), value) for name, value in values.items()}
        components = {name: (old, new) for name, (old, new) in pairs.items() if new > old + self._tolerance}
        original = self.trajectory
        text = example.turns[-1].text if example.answer == original.answer else str(example.answer)
        return {
            "trajectory": original.id,
            "data_source": original.data_source,
            "wrong": self.wrong,
            "before": before.total,
            "after": None if after is None else after.total,
            "components": components,
            "answer": text if len(text) <= MAX_GUESS else f"{text[:MAX_GUESS]}...",
            "error": error,
        }


def attack_table(report: Mapping[str, Any], title: str) -> Table:
    """Create a table with one row per attack, sorted by the highest gain.

    The columns count the attacked trajectories, the raised rewards (in total and for wrong answers), and the
    trajectories that escaped their reward. The gains are the increases of the raised rewards.
    """
    table = Table(title=Text(title), title_justify="left")
    table.add_column("attack", no_wrap=True)
    for name in ("tried", "raised", "wrong", "mean gain", "max gain", "escaped"):
        table.add_column(name, justify="right")
    rows = report["attacks"]
    for name in sorted(rows, key=lambda name: (-rows[name]["max_gain"], -rows[name]["escaped"])):
        row = rows[name]
        counts = (row["applied"], row["raised"], row["raised_wrong"])
        gains = (f"{row['mean_gain']:+.3f}", f"{row['max_gain']:+.3f}") if row["raised"] else ("", "")
        style = "bold red" if row["raised"] or row["escaped"] else None
        table.add_row(Text(name), *[f"{count:,}" for count in counts], *gains, f"{row['escaped']:,}", style=style)
    return table


def _mean(scores: Sequence[Score]) -> Score:
    names = list(scores[0].components)
    return Score(
        total=statistics.fmean(score.total for score in scores),
        components={name: statistics.fmean(score.components.get(name, 0.0) for score in scores) for name in names},
    )


def _truths(trajectories: Iterable[Trajectory]) -> dict[str, list[str]]:
    """Return the distinct ground truths of each data source, as text."""
    truths: dict[str, list[str]] = {}
    pairs = ((trajectory.data_source, _truth(trajectory.ground_truth)) for trajectory in trajectories)
    for source, truth in dict.fromkeys(pairs):
        truths.setdefault(source, []).extend([truth] if truth is not None else [])
    return truths


def _guesses(trajectory: Trajectory, truths: Sequence[str]) -> list[str]:
    """Return the guesses, starting with the right answer, or no guesses if the right answer is missing or too long."""
    truth, own = _truth(trajectory.ground_truth), (trajectory.answer or "").strip()
    if truth is None:
        return []
    start = zlib.crc32(truth.encode(errors="replace")) % len(truths) if truths else 0
    others = [own] if own and len(own) <= MAX_GUESS and len(own.split()) <= len(truth.split()) else []
    others += [*truths[start : start + 2 * GUESSES], *truths[:GUESSES], *FILLERS]
    guesses = [truth]
    for other in others:
        if not any(other in guess or guess in other for guess in guesses):  # a guess must not contain another guess
            guesses.append(other)
    return guesses[:GUESSES] if len(guesses) >= GUESSES else []


def _truth(ground_truth: Any) -> str | None:
    """Return the first ground truth as the text of an answer, or None if it is empty or too long."""
    while isinstance(ground_truth, Mapping | list | tuple):
        options = ground_truth
        if isinstance(options, Mapping):
            options = [options.get("target", options.get("answer"))]
        ground_truth = options[0] if options else None
    text = "" if ground_truth is None else str(ground_truth).rpartition("####")[2].strip()
    return text if 0 < len(text) <= MAX_GUESS else None
