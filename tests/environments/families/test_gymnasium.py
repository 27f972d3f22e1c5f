"""Environments of Gymnasium: the reward is their own, and what the agent reads says where it is."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from agent_rl.environments import load_environment
from agent_rl.environments.families.gymnasium import environment
from agent_rl.errors import ConfigError, InvalidArgumentsError
from tests.environments.families.playing import Action, Rollouts, play, values

pytestmark = pytest.mark.slow


@cache
def best_actions(id: str) -> dict[int, int]:
    """By value iteration."""
    table = gymnasium.make(id).unwrapped.P
    worths = dict.fromkeys(table, 0.0)

    def worth(outcomes: Any) -> float:
        return sum(p * (reward + (0.0 if end else 0.99 * worths[state])) for p, state, reward, end in outcomes)

    for _ in range(200):
        worths.update({state: max(map(worth, choices.values())) for state, choices in table.items()})
    return {state: max(choices, key=lambda action: worth(choices[action])) for state, choices in table.items()}


def from_table(world: Any) -> Iterator[int]:
    while True:
        yield best_actions(world.spec.id)[world.unwrapped.s]


def to_the_ball(world: Any) -> Iterator[int]:
    from minigrid.utils.baby_ai_bot import BabyAIBot

    bot = BabyAIBot(world)
    while True:
        yield int(bot.replan())


def stick_at_17(world: Any) -> Iterator[int]:
    while True:
        yield int(sum(world.unwrapped.player) < 17)


def upright(world: Any) -> Iterator[int]:
    while True:
        yield int(world.unwrapped.state[2] + world.unwrapped.state[3] > 0)


WORLDS: dict[str, Callable[[Any], Iterator[int]]] = {
    "BabyAI-GoToRedBall-v0": to_the_ball,
    "Blackjack-v1": stick_at_17,
    "CartPole-v1": upright,
    "CliffWalking-v1": from_table,
    "FrozenLake-v1": from_table,
    "Taxi-v4": from_table,
}


def wrong(world: Any) -> Iterator[int]:
    for number in range(5):
        yield number % int(world.action_space.n)


def directly(id: str, seed: int, player: Callable[[Any], Iterator[int]]) -> tuple[list[Action], float, bool]:
    """Act in the package; return the calls, the sum of the rewards and whether it has ended."""
    world, names = gymnasium.make(id), environment(id).actions  # type: ignore[attr-defined]
    world.reset(seed=seed)
    actions: list[Action] = []
    total, done = 0.0, False
    for action in player(world):
        actions.append(("act", {"action": names[action]}))
        _, reward, terminated, truncated, _ = world.step(action)
        total += float(reward)
        if done := terminated or truncated:
            break
    return actions, total, done


ROLLOUTS: Rollouts = {
    id: lambda row, id=id, player=player: directly(id, row["seed"], player)[:2]  # type: ignore[misc]
    for id, player in WORLDS.items()
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:pygame")
@pytest.mark.parametrize("player", ["gold", "wrong"])
@pytest.mark.parametrize("id", WORLDS)
def test_reward_is_the_worlds_own(id: str, player: str) -> None:
    row = values(f"gymnasium:{id}", "test", 2)
    actions, reward, done = directly(id, row["seed"], WORLDS[id] if player == "gold" else wrong)
    played = play(f"gymnasium:{id}", row, actions)
    assert played == play(f"gymnasium:{id}", row, actions)
    assert played.reward == pytest.approx(reward)
    assert played.done == done
    assert done or player == "wrong"
    assert play(f"gymnasium:{id}", row, []).reward == 0.0


def test_gold_is_better_than_wrong() -> None:
    for id in ("BabyAI-GoToRedBall-v0", "CartPole-v1", "CliffWalking-v1", "Taxi-v4"):
        gold, other = (directly(id, 0, player)[1] for player in (WORLDS[id], wrong))
        assert gold > other, id


def act(*actions: Any) -> list[Action]:
    return [("act", {"action": action}) for action in actions]


def text(id: str, *actions: Any) -> str:
    shown = play(f"gymnasium:{id}", values(f"gymnasium:{id}"), act(*actions)).texts[-1]
    assert shown is not None
    return shown


def test_observations_are_text() -> None:
    assert text("FrozenLake-v1") == "[S]FFF\nFHFH\nFFFH\nHFFG"
    assert text("CliffWalking-v1", "up").splitlines()[2].startswith("x  o")
    assert "[ ]" in text("Taxi-v4")
    assert text("Taxi-v4").endswith("The passenger is at B and wants to go to Y.")
    assert text("Blackjack-v1") == "Your cards count 11. The dealer's open card counts 10."
    assert text("CartPole-v1", 1).startswith("Observation: [")
    seen = text("BabyAI-GoToRedBall-v0").splitlines()
    assert seen[0] == "Mission: go to the red ball."
    assert {"You see a red ball, 4 ahead, 3 to the right.", "You see a grey wall, 2 to the left."} < set(seen)


@pytest.mark.parametrize("id", ["MiniGrid-DoorKey-5x5-v0", "BabyAI-UnlockPickup-v0"])
def test_doors_and_what_the_agent_carries_are_described(id: str) -> None:
    row, texts = values(f"gymnasium:{id}"), set()
    for action in ("left", "right"):
        shown = play(f"gymnasium:{id}", row, act(*[action, "pickup"] * 4)).texts
        texts |= {line for each in shown for line in (each or "").splitlines()}
    assert any(line.startswith("You see a locked ") for line in texts), texts


def test_the_tool_names_its_actions() -> None:
    (spec,) = load_environment("name", "gymnasium:Taxi-v4").specs
    names = ["south", "north", "east", "west", "pickup", "dropoff"]
    assert spec.parameters["properties"]["action"]["enum"] == names
    with pytest.raises(InvalidArgumentsError, match="'south'"):
        play("gymnasium:Taxi-v4", values("gymnasium:Taxi-v4"), act("up"))


def test_a_world_of_your_own_is_registered_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "worlds.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.toy_text import FrozenLakeEnv\n\n"
        "gymnasium.register('Pond-v0', entry_point=FrozenLakeEnv, kwargs={'map_name': '4x4', 'is_slippery': False})\n"
    )
    target = f"gymnasium:{tmp_path}/worlds.py:Pond-v0"
    played = play(target, values(target), [("act", {"action": number}) for number in (1, 1, 2, 2, 1, 2)])
    assert (played.reward, played.done) == (1.0, True)
    with pytest.raises(ConfigError, match="Did you mean 'Pond-v0'"):
        load_environment("name", target.replace("Pond", "Pnd"))


@pytest.mark.parametrize(
    ("id", "problem"),
    [
        ("FrozenLake", "Did you mean 'FrozenLake-v1'"),
        ("Pendulum-v1", r"its actions are Box\(.*\), which an agent cannot choose by name"),
        ("phys2d/CartPole-v1", "it cannot be created: ModuleNotFoundError"),
    ],
)
def test_a_world_that_cannot_be_used_is_refused(id: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_environment("name", f"gymnasium:{id}")


@pytest.mark.trainer
def test_train_composes_a_run(here: Path) -> None:
    from agent_rl.launch.training import dry_run

    composed, notes = dry_run("gymnasium:FrozenLake-v1,textarena:GuessTheNumber-v0")
    assert "gymnasium_frozenlake_v1: gymnasium:FrozenLake-v1" in composed
    assert "textarena_guessthenumber_v0: textarena:GuessTheNumber-v0" in composed
    assert len(notes) == 1, notes
