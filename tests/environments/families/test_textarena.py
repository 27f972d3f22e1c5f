"""Games of TextArena: what the agent reads and its reward are the game's own."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import textarena

from agent_rl.environments import load_environment
from agent_rl.environments.worked import expert_turns
from agent_rl.errors import ConfigError
from tests.environments.families.playing import Action, Rollouts, play, session, values

pytestmark = pytest.mark.slow


def guesses(game: Any) -> Iterator[str]:
    yield f"[{game.game_number % 20 + 1}]"
    yield f"[{game.game_number}]"


def towers(game: Any) -> Iterator[str]:
    def moves(disks: int, source: str, target: str, spare: str) -> Iterator[str]:
        if disks:
            yield from moves(disks - 1, source, spare, target)
            yield f"[{source} {target}]"
            yield from moves(disks - 1, spare, target, source)

    yield from moves(game.num_disks, "A", "C", "B")


def lake(game: Any) -> Iterator[str]:
    state, ways = game.state.game_state, {"down": (1, 0), "right": (0, 1), "up": (-1, 0), "left": (0, -1)}
    paths = deque([(tuple(state["player_pos"]), ())])
    seen = set()
    while paths:
        (row, column), path = paths.popleft()
        if (row, column) == tuple(state["goal_pos"]):
            yield from path
            return
        if (row, column) in seen or not (0 <= row < game.size and 0 <= column < game.size):
            continue
        seen.add((row, column))
        if state["grid"][row][column] != "H":
            paths.extend(((row + down, column + right), (*path, f"[{w}]")) for w, (down, right) in ways.items())


def code(game: Any) -> Iterator[str]:
    secret = game.state.game_state["secret_code"]
    for guess in (secret[::-1], secret):
        yield f"[{' '.join(map(str, guess))}]"


def sudoku(game: Any) -> Iterator[str]:
    board, full = game.state.game_state["board"], game.full_grid
    yield from [f"[{r + 1} {c + 1} {full[r][c]}]" for r in range(9) for c in range(9) if board[r][c] == 0]


def mines(game: Any) -> Iterator[str]:
    yield "[0 0]"
    for row in range(game.rows):
        for column in range(game.cols):
            if game.grid[row][column] != -1 and not game.revealed[row][column]:
                yield f"[{row} {column}]"


def tiles(game: Any) -> Iterator[str]:
    for number in range(200):
        yield ("[Left]", "[Down]", "[Right]", "[Down]", "[Up]")[number % 5]


def cards(game: Any) -> Iterator[str]:
    yield from ("[Hit]", "[Stand]") * 20


GAMES: dict[str, Callable[[Any], Iterator[str]]] = {
    "2048-v0-ultra-easy": tiles,
    "Blackjack-v0": cards,
    "FrozenLake-v0": lake,
    "GuessTheNumber-v0": guesses,
    "Mastermind-v0": code,
    "Minesweeper-v0-small": mines,
    "Sudoku-v0-very-easy": sudoku,
    "TowerOfHanoi-v0": towers,
}
SOLVED = set(GAMES) - {"2048-v0-ultra-easy", "Blackjack-v0"}


def directly(id: str, seed: int, player: Callable[[Any], Iterator[str]]) -> tuple[list[Action], float]:
    """Play in the package; return the moves until the end and the reward."""
    game = textarena.make(id)
    game.reset(num_players=1, seed=seed)
    moves: list[Action] = []
    for move in player(game):
        moves.append(move)
        done, _ = game.step(move)
        if done:
            break
    rewards, _ = game.close()
    return moves, float((rewards or {0: 0.0})[0])


ROLLOUTS: Rollouts = {
    id: lambda row, id=id, player=player: directly(id, row["seed"], player)  # type: ignore[misc]
    for id, player in GAMES.items()
}


@pytest.mark.parametrize("id", GAMES)
def test_reward_is_the_games_own(id: str) -> None:
    row = values(f"textarena:{id}", "test", 3)
    moves, reward = directly(id, row["seed"], GAMES[id])
    assert (reward == 1.0) or id not in SOLVED
    played = play(f"textarena:{id}", row, moves)
    assert (played.reward, played.done) == (reward, True)
    assert played.texts[-1] is None
    assert all(played.texts[:-1])
    assert played == play(f"textarena:{id}", row, moves)


@pytest.mark.parametrize("id", GAMES)
def test_moves_against_the_rules_are_the_games_to_judge(id: str) -> None:
    row = values(f"textarena:{id}")
    moves, reward = directly(id, row["seed"], lambda game: iter(["no", "no"]))
    played = play(f"textarena:{id}", row, moves)
    assert played.reward == reward
    assert play(f"textarena:{id}", row, []).reward == 0.0


def test_the_agent_reads_only_what_is_new() -> None:
    row = values("textarena:GuessTheNumber-v0")
    first, second, _ = play("textarena:GuessTheNumber-v0", row, ["[1]", "[2]"]).texts
    assert first
    assert first.startswith("You are Player 0. You are playing Guess The Number.")
    assert second == "The target number is higher."


def test_the_expert_wins() -> None:
    target = "textarena:GuessTheNumber-v0"
    for index in range(8):
        row = values(target, index=index)
        *moves, _ = expert_turns(load_environment("name", target), row)
        assert play(target, row, [move.message for move in moves]).reward == 1.0


def test_a_game_depends_on_its_row_and_its_moves_alone() -> None:
    target, moves = "textarena:2048-v0", ["[Left]", "[Up]", "[Right]", "[Down]"] * 3
    rows = [values(target, index=index) for index in (0, 0, 1)]
    alone = [play(target, row, moves) for row in rows]

    async def together() -> list[list[str | None]]:
        sessions = [session(target, row) for row in rows]
        texts = [[await each.reset()] for each in sessions]
        for move in moves:
            for each, seen in zip(sessions, texts, strict=True):
                random.seed(len(seen))
                seen.append((await each.step(move))[0])
        for each in sessions:
            await each.close()
        return texts

    assert asyncio.run(together()) == [each.texts for each in alone]
    assert alone[0] == alone[1] != alone[2]


@pytest.mark.parametrize(
    ("id", "problem"),
    [
        ("GuessTheNumbr-v0", "Did you mean 'GuessTheNumber-v0'"),
        ("TicTacToe-v0", "one player cannot begin the game: The number of players has to be 2"),
        ("MarketEntryGame-v0", "the game has opponents"),
        ("TwentyQuestions-v0", "OpenRouter API key not found"),
    ],
)
def test_a_game_that_cannot_be_played_is_refused(id: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    state = random.getstate()
    with pytest.raises(ConfigError, match=problem):
        load_environment("name", f"textarena:{id}")
    assert random.getstate() == state
