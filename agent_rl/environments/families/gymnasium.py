"""Gymnasium's and minigrid's environments with discrete actions, such as `gymnasium:FrozenLake-v1`, and environments
that a file registers, such as `gymnasium:my_worlds.py:MyWorld-v0`.

The `act` tool performs one action, which is chosen by name if actions have names. The result shows the observation
as text: cards and a minigrid agent's view in words, and other worlds as Gymnasium's drawing, if it exists. The reward
is the sum of the environment's rewards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import EnumMeta
from pathlib import Path
from typing import Any, ClassVar, Literal

from agent_rl.environments.environment import Environment
from agent_rl.environments.families import seeded_rows
from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import load_file
from agent_rl.settings.user_code import one_line

_KNOWN = {
    "FrozenLake": (
        "left down right up",
        "Cross the frozen lake from S to G without falling into a hole H. The ice F is slippery: you may slide to a "
        "side of where you want to go. Your place has [ ] around it.",
    ),
    "CliffWalking": (
        "up right down left",
        "Walk to T in as few steps as you can, and not over the cliff C, which sends you back to the start. x is you.",
    ),
    "Taxi": (
        "south north east west pickup dropoff",
        "Drive the taxi, the place with [ ] around it, to the passenger; pick them up and drop them off where they "
        "want to go, in as few steps as you can. No way leads through | and -.",
    ),
    "Blackjack": ("stick hit", "Get closer to 21 than the dealer, who draws up to 17, and not over it."),
}
"""For each kind of world, the actions in the order of their numbers, and the task."""


class _World(Environment):
    id: ClassVar[str]
    actions: ClassVar[tuple[Any, ...]]

    def rows(self, split: str, seed: int) -> Iterable[Mapping[str, Any]]:
        return seeded_rows("Begin.", split, seed)

    def reset(self, **row: Any) -> str:
        self.world, self.total = _make(self.id), 0.0
        return self._text(self.world.reset(seed=row["seed"])[0])

    def act(self, action: Any) -> str:
        """Do one action, and see what follows."""
        number = self.actions.index(action) + int(self.world.action_space.start)
        seen, reward, terminated, truncated, _ = self.world.step(number)
        self.total += float(reward)
        self.done = terminated or truncated
        return self._text(seen)

    def get_reward(self) -> float:
        return self.total

    def _text(self, seen: Any) -> str:
        if isinstance(seen, Mapping) and "mission" in seen:
            return _view(seen)
        if self.id.startswith("Blackjack"):
            ace = ", with an ace that counts 11" if seen[2] else ""
            return f"Your cards count {seen[0]}{ace}. The dealer's open card counts {seen[1]}."
        if self.world.render_mode is None:
            return f"Observation: {seen}"
        drawing = re.sub(r"\x1b\[4\dm(.)\x1b\[0m", r"[\1]", self.world.render())  # replaces the background color
        drawing = re.sub(r"\x1b\[[\d;]*m", "", drawing).strip("\n")
        if not self.id.startswith("Taxi"):
            return drawing
        *_, passenger, target = self.world.unwrapped.decode(seen)
        place = "in the taxi" if passenger == 4 else f"at {'RGYB'[passenger]}"
        return f"{drawing}\nThe passenger is {place} and wants to go to {'RGYB'[target]}."


def environment(id: str) -> type[Environment]:
    """Return the class of an environment.

    Raises:
        ConfigError: the environment does not exist, cannot be created here, or has actions that are not discrete.
    """
    import gymnasium

    with suppress(ImportError):
        import minigrid  # noqa: F401 - the import registers the environments
    file, _, id = id.rpartition(":")
    if file:
        load_file(file, Path.cwd(), Place(f"gymnasium:{file}"))
    if id not in gymnasium.registry:
        raise ConfigError(f"gymnasium:{id}", f"there is no environment {id!r}", did_you_mean(id, gymnasium.registry))
    try:
        world = _make(id)
    except Exception as error:  # every package raises its own errors; the user reads the message
        remedy = "Install the packages that the environment needs, or choose another environment"
        raise ConfigError(f"gymnasium:{id}", f"it cannot be created: {one_line(error)}", remedy) from error
    space, own_names = world.action_space, getattr(world.unwrapped, "actions", None)
    if not isinstance(space, gymnasium.spaces.Discrete):
        problem = f"its actions are {space}, which an agent cannot choose by name"
        raise ConfigError(f"gymnasium:{id}", problem, "Choose a world with discrete actions, such as FrozenLake-v1")
    names, task = next(
        (known for kind, known in _KNOWN.items() if id.startswith(kind)), ("", f"Act in the world {id}.")
    )
    if isinstance(own_names, EnumMeta):
        names = " ".join(map(str.lower, own_names.__members__))
    actions: tuple[Any, ...] = tuple(names.split()[: space.n]) or tuple(range(space.n))

    def act(self: _World, action: Any) -> str:
        return _World.act(self, action)

    act.__doc__ = _World.act.__doc__
    act.__annotations__ = {"action": Literal.__getitem__(actions), "return": str}
    values = {"id": id, "actions": actions, "act": act, "__doc__": f"{task} Act until the episode is over."}
    return type(f"gymnasium:{id}", (_World,), values)


def _make(id: str) -> Any:
    """Return a new world, whose `render` method returns text if the world supports this."""
    import gymnasium

    world = gymnasium.make(id)
    return gymnasium.make(id, render_mode="ansi") if "ansi" in world.metadata["render_modes"] else world


def _view(seen: Mapping[str, Any]) -> str:
    """Describe the view of a minigrid agent: the objects, and walls straight ahead or at its sides."""
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX

    image, lines = seen["image"].tolist(), [f"Mission: {seen['mission']}."]
    for across, column in enumerate(image):
        for down, (kind, color, state) in enumerate(column):
            side, ahead, name = across - len(image) // 2, len(image) - 1 - down, IDX_TO_OBJECT[kind]
            if name in ("unseen", "empty", "floor") or (name == "wall" and side and ahead):
                continue
            thing = f"{list(STATE_TO_IDX)[state]} " * (name == "door") + f"{IDX_TO_COLOR[color]} {name}"
            places = [f"{ahead} ahead"] * (ahead > 0) + [
                f"{abs(side)} to the {'left' if side < 0 else 'right'}"
            ] * bool(side)
            lines.append(f"You see a {thing}, {', '.join(places)}." if places else f"You carry a {thing}.")
    return "\n".join(lines)
