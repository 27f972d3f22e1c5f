"""What the formula in a recipe's README pays: read from the text, and computed on random trajectories."""

import asyncio
import math
import random
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.checks.reward import giving_up
from agent_rl.preflight.check import Status
from agent_rl.rewards.formula import formulas
from agent_rl.trajectory import StopReason, ToolCall, ToolResult, ToolStatus, Trajectory, Turn

ROOT = Path(__file__).parents[2]
SCORED = [each for each in StopReason if each not in (StopReason.ENGINE_ERROR, StopReason.ERROR)]
TERM = re.compile(r"(?P<weight>[-\d.]+) x (?P<name>\w+) \((?P<value>.+?)\)(?:, only where (?P<gate>.+))?")
CALLS = re.compile(r"-([\d.]+) for each call beyond (\d+), at least (-[\d.]+)")
MALFORMED = re.compile(r"-1/(\d+) for each malformed turn, at least -1")
MEASURED = re.compile(r"by [^,]+(?:, \w+=\w+)*(?:, or its user)?(?P<sigmoid>, its sigmoid)?")
GATE = re.compile(r"(\w+) >= ([-\d.]+)")


@dataclass
class Facts:
    """What the test knows about a trajectory that it made."""

    calls: int
    """Without those that hand in the answer."""
    malformed: int
    verdict: float
    value: float
    """What every component of a model, a service or a file measures."""


def episode(seed: int) -> tuple[Trajectory, Facts]:
    chance = random.Random(seed)
    facts = Facts(0, 0, chance.choice([0.0, 1.0, 1.0, chance.random()]), chance.uniform(-3, 3))
    turns = []
    for number in range(chance.randrange(14)):
        turn = Turn("", tokens=chance.randrange(300), tool_seconds=chance.random(), generation_seconds=chance.random())
        if chance.random() < 0.2:
            turn.malformed = "unreadable"
            facts.malformed += 1
        for call in range(chance.choice([0, 1, 1, 1, 3])):
            turn.calls.append(ToolCall("look", {"n": chance.randrange(3)}, id=f"{number}_{call}"))
            turn.results.append(ToolResult(f"{number}_{call}", "look", "seen", chance.choice(list(ToolStatus))))
            facts.calls += 1
        turns.append(turn)
    stop = chance.choice(SCORED)
    if chance.random() < 0.3:
        handed_in = ToolResult("last", "submit_answer", "", answer="5")
        turns.append(Turn("", calls=[ToolCall("submit_answer", id="last")], results=[handed_in]))
        stop = StopReason.ANSWERED
    return Trajectory([], stop, turns, id=str(seed), response_tokens=chance.randrange(5000)), facts


EPISODES = [episode(seed) for seed in range(1000)]


def readme(recipe: str) -> str:
    page = (ROOT / "recipes" / recipe / "README.md").read_text()
    (block,) = re.findall(r"<!-- The reward, by make docs.*?-->\n```text\n(.*?)\n```\n<!-- The end of", page, re.DOTALL)
    return str(block)


def value(name: str, words: str, facts: Facts) -> float:
    if match := CALLS.fullmatch(words):
        cost, free, floor = map(float, match.groups())
        return max(floor, -cost * max(0.0, facts.calls - free))
    if match := MALFORMED.fullmatch(words):
        return max(-1.0, -facts.malformed / int(match[1]))
    match = MEASURED.fullmatch(words)
    assert match, f"{name}: {words}"
    measured = facts.verdict if name == "correctness" else facts.value
    return 1 / (1 + math.exp(-measured)) if match["sigmoid"] else measured


def paid(formula: str, facts: Facts) -> float:
    terms = [TERM.fullmatch(line) for line in formula.removeprefix("reward = ").split("\n       + ")]
    values, total = {}, 0.0
    for term in terms:
        assert term, formula
        values[term["name"]] = value(term["name"], term["value"], facts)
    for term in terms:
        assert term
        conditions = [GATE.fullmatch(each) for each in (term["gate"] or "").split(" and ") if each]
        if all(each and values[each[1]] >= float(each[2]) for each in conditions):
            total += float(term["weight"]) * values[term["name"]]
    return total


def check_readme(recipe: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README of a recipe has the formula of its composed reward, which pays the same on all trajectories.

    Giving up at once pays no more than honest work.
    """
    formula, reward = readme(recipe), case.reward
    assert [each.status for each in giving_up(case)] in ([], [Status.OK])
    assert [formula] == list(formulas(reward).values()), "run `make docs`"

    async def measure(trajectory: Trajectory) -> float:
        return EPISODES[int(trajectory.id)][1].value

    for component in reward.components:
        monkeypatch.setattr(component, "measure", measure)
    group = [trajectory for trajectory, _ in EPISODES]
    scores = asyncio.run(reward.score_group(group, verdicts=[facts.verdict for _, facts in EPISODES]))
    found = [score if isinstance(score, Exception) else score.total for score in scores]
    assert found == pytest.approx([paid(formula, facts) for _, facts in EPISODES], abs=1e-9)
