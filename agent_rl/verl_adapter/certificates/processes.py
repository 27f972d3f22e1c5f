"""Small tasks whose trajectories can all be listed, so that a gradient over them can be computed exactly.

A process is the code of one episode, which samples tokens (0 or 1), reads observations and assigns rewards. The logits
of a process's states are the policy's parameters. `enumerate_trajectories` plays a process once per trajectory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

ACTIONS = 2
OBSERVATION = ("", 0, 0)
COMPONENTS = ("accuracy", "length")
"""The components of a reward; most processes use only the first component."""


@dataclass
class TabularTrajectory:
    """One trajectory of a process, produced by the process's code.

    Attributes:
        prompt: the number of the trajectory's prompt.
        sequences: the tokens of each training sequence, as (state, action, number of earlier events) or `OBSERVATION`.
        rewards: sequence, position, component and value of each reward.
        chance: the joint probability of all random outcomes that do not depend on the policy.
        is_scored: whether the trajectory reaches the trainer.
        events: the actions and the random outcomes so far, in order.
        is_likely: whether each random outcome so far was the more likely of the two.
    """

    prompt: int = 0
    script: tuple[int, ...] = ()
    sequences: list[list[tuple[str, int, int]]] = field(default_factory=lambda: [[]])
    rewards: list[tuple[int, int, str, float]] = field(default_factory=list)
    chance: float = 1.0
    is_scored: bool = True
    events: list[int] = field(default_factory=list)
    is_likely: bool = True

    def sample(self, state: str) -> int:
        """Sample a token, 0 or 1, with the logits of this state."""
        action = self._next()
        self.sequences[-1].append((state, action, len(self.events) - 1))
        return action

    def happens(self, probability: float) -> bool:
        """Decide at random whether an event happens; its probability does not depend on the policy."""
        event = self._next()
        self.chance *= probability if event else 1 - probability
        self.is_likely &= bool(event) == (probability > 0.5)
        return bool(event)

    def observe(self, tokens: int = 1) -> None:
        """Read an observation, which ends the turn and whose tokens are masked."""
        self.sequences[-1] += [OBSERVATION] * tokens

    def reward(self, value: float, component: str = COMPONENTS[0]) -> None:
        """Record a reward for the current turn."""
        self.rewards.append((len(self.sequences) - 1, len(self.sequences[-1]) - 1, component, value))

    def fold(self) -> None:
        """Begin a new training sequence, whose prompt contains the history."""
        self.sequences.append([])

    def fail(self) -> None:
        """End the trajectory without a score."""
        self.is_scored = False

    @property
    def total(self) -> float:
        """The reward of the whole trajectory."""
        return sum(value for *_, value in self.rewards)

    def component(self, name: str) -> float:
        """Return the sum of a component's rewards."""
        return sum(value for _, _, component, value in self.rewards if component == name)

    def sampled(self) -> Iterator[tuple[str, int, int]]:
        """Yield the sampled tokens of all sequences."""
        return (token for tokens in self.sequences for token in tokens if token != OBSERVATION)

    def _next(self) -> int:
        event = self.script[len(self.events)] if len(self.events) < len(self.script) else 0
        self.events.append(event)
        return event


@dataclass(frozen=True)
class TabularProcess:
    """A named task, with the sizes of its groups and batches.

    Attributes:
        play: the function that plays an episode.
        members: samples per prompt.
        prompts: prompts per batch.
        has_two_levels: whether the reward of every trajectory is 0 or 1.
        bias: a number that is added to the logits of token 1.
    """

    play: Callable[[TabularTrajectory], None]
    members: int
    prompts: int = 1
    has_two_levels: bool = False
    bias: float = 0.0

    @property
    def name(self) -> str:
        """The name of the `play` function."""
        return self.play.__name__


def enumerate_trajectories(play: Callable[[TabularTrajectory], None], prompt: int = 0) -> Iterator[TabularTrajectory]:
    """Play a prompt once for each possible sequence of actions and random outcomes."""
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        script = scripts.pop()
        trajectory = TabularTrajectory(prompt, script)
        play(trajectory)
        events = tuple(trajectory.events)
        scripts += [(*events[:place], 1) for place in range(len(script), len(events))]
        yield trajectory


def lengths(play: TabularTrajectory) -> None:
    """Play one to five turns, each of which has a reward; the number of turns affects the outcome."""
    for turn, outcome in enumerate((0.2, 0.6, 0.9, 0.5, 0.1)):
        is_over = not play.sample(f"turn {turn}") or turn == 4
        play.reward(0.3)
        if is_over:
            return play.reward(outcome)
        play.observe()


def turn_rewards(play: TabularTrajectory) -> None:
    """Play up to three turns, in which content and continuation are sampled; every turn and the end are rewarded."""
    content = 0
    for turn in range(3):
        content += play.sample(f"content {turn}")
        play.reward((0.5, -0.4, 1.0)[turn] * content)
        if turn == 2 or play.sample(f"continue {turn}") == 0:
            break
        play.observe(2)
    play.reward(0.7 if content == 1 else 0.1 * content)


def shared(play: TabularTrajectory) -> None:
    """Odd and even turns have separate parameters; an episode that stops after two to four of six turns succeeds."""
    turns = 1
    while play.sample("odd turn" if turns % 2 else "even turn") and turns < 6:
        play.observe()
        turns += 1
    play.reward(float(2 <= turns <= 4))


def folded(play: TabularTrajectory) -> None:
    """Play up to four turns, each in a training sequence of its own; most turns have a reward."""
    for turn, outcome in enumerate((0.0, 0.4, 1.0, 0.2)):
        if turn == 3 or not play.sample(f"turn {turn}"):
            return play.reward(outcome + 0.3 * play.sample("answer"))
        play.reward(0.2 * turn)
        play.observe()
        play.fold()


def two_prompts(play: TabularTrajectory) -> None:
    """An easy prompt with short answers and a hard prompt with long answers, which share a parameter."""
    if play.prompt == 0:
        return play.reward(float(play.sample("care") or play.sample("easy")))
    for state in ("care", "hard 1", "hard 2", "hard 3"):
        if not play.sample(state):
            return play.reward(0.0)
        play.observe()
    play.sample("care")
    play.reward(1.0)


def all_equal(play: TabularTrajectory) -> None:
    """Success is rare, so most groups have equal rewards."""
    for state in ("first", "second", "third"):
        if not play.sample(state):
            return play.reward(0.0)
        play.observe()
    play.reward(1.0)


def unscored(play: TabularTrajectory) -> None:
    """Three in ten samples fail, regardless of their actions, and are missing from their group."""
    if play.happens(0.3):
        play.fail()
    turns = 1
    while turns < 4 and play.sample(f"turn {turns}"):
        play.observe()
        turns += 1
    play.reward(float(turns in (2, 4)))


def components(play: TabularTrajectory) -> None:
    """The reward has two components of different magnitude: accuracy, and a penalty for length."""
    turns = 1
    while turns < 4 and play.sample(f"turn {turns}"):
        play.observe(2)
        turns += 1
    play.reward(2.0 * (play.sample("answer") and turns > 1))
    play.reward(-0.3 * turns, COMPONENTS[1])


PROCESSES = (
    TabularProcess(lengths, members=4, bias=-0.3),
    TabularProcess(turn_rewards, members=2),
    TabularProcess(shared, members=3, has_two_levels=True),
    TabularProcess(folded, members=2),
    TabularProcess(two_prompts, members=2, prompts=2, has_two_levels=True),
    TabularProcess(all_equal, members=4, has_two_levels=True, bias=-0.4),
    TabularProcess(unscored, members=3, has_two_levels=True),
    TabularProcess(components, members=3),
)
