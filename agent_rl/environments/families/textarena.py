"""Games of TextArena for one player: `textarena:GuessTheNumber-v0`.

Each message of the agent is a move, which the game answers with its next text. The game sets the reward when it ends;
if it does not end, the reward is 0. The game handles illegal moves; most games allow only one illegal move in a row.

TextArena's games draw from the global `random` module in every move. Here each trajectory has its own random number
generator, so that a game depends only on its row and its moves.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from agent_rl.environments.environment import Environment
from agent_rl.environments.families import seeded_rows
from agent_rl.errors import ConfigError, did_you_mean


class _Numbers(threading.local):
    """Replaces `random` in all games: uses the generator of the thread's trajectory, if any, else the real module."""

    Random = random.Random
    source: Any = random

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)


_NUMBERS = _Numbers()


class _Game(Environment):
    """Play a game. Each of your messages is one move, written as the game asks for it."""

    id: ClassVar[str]

    def rows(self, split: str, seed: int) -> Iterable[Mapping[str, Any]]:
        return seeded_rows(f"Play {self.id.partition('-v')[0]}.", split, seed)

    def reset(self, **row: Any) -> str:
        _NUMBERS.source = self.random
        self.game = _new_game(self.id, row["seed"])
        return self._news()

    def step(self, message: str) -> str | None:
        _NUMBERS.source = self.random
        self.done, _ = self.game.step(message)
        return None if self.done else self._news()

    def get_reward(self) -> float:
        rewards, _ = self.game.close()
        return float((rewards or {}).get(0, 0.0))

    def _news(self) -> str:
        """Return the game's text since the last move; TextArena's wrappers would repeat the whole game."""
        messages = self.game.state.get_current_player_observation()
        return "\n".join(text.strip() for _, text, kind in messages if kind.name != "PLAYER_ACTION")


class _GuessTheNumber(_Game):
    def solve(self) -> None:
        low, high = self.game.min_number, self.game.max_number
        while not self.done:
            guess = (low + high) // 2
            low, high = (guess + 1, high) if "higher" in (self.say(f"[{guess}]") or "") else (low, guess - 1)


def environment(id: str) -> type[Environment]:
    """Return the class of a game.

    Raises:
        ConfigError: the game does not exist, has opponents, or lacks something that it needs.
    """
    from textarena.envs.registration import ENV_REGISTRY

    if id not in ENV_REGISTRY:
        raise ConfigError(f"textarena:{id}", f"TextArena has no game {id!r}", did_you_mean(id, ENV_REGISTRY))
    remedy = "Choose a game for one player that needs no download, for example GuessTheNumber-v0"
    _NUMBERS.source = random.Random(0)
    try:
        state = type(_new_game(id, 0).state).__name__
    except Exception as error:  # a game may raise any error; the user reads the message
        text = " ".join(str(error).split()).strip("* ")[:150]
        raise ConfigError(f"textarena:{id}", f"one player cannot begin the game: {text}", remedy) from error
    finally:
        _NUMBERS.source = random
    if state != "SinglePlayerState":
        raise ConfigError(f"textarena:{id}", f"the game has opponents ({state})", remedy)
    base = _GuessTheNumber if id.startswith("GuessTheNumber") else _Game
    return type(f"textarena:{id}", (base,), {"id": id, "__doc__": _Game.__doc__})


def _new_game(id: str, seed: int) -> Any:
    """Start a game and return it."""
    import textarena

    game = textarena.make(id)
    for name, module in list(sys.modules.items()):
        if name.startswith("textarena.") and vars(module).get("random") is random:
            vars(module)["random"] = _NUMBERS
    game.reset(num_players=1, seed=seed)
    return game
