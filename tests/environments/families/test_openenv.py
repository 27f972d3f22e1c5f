"""The rewards of `openenv:` equal those of the environment, which runs here without any server."""

import random
import socket
import subprocess
import time
from pathlib import Path

import pytest

from agent_rl.environments import load_environment
from agent_rl.environments.install import python_of
from agent_rl.errors import ConfigError, ToolError
from tests.environments.families.playing import Action, Rollouts
from tests.environments.families.served_family import Step, as_actions, in_family, needs, rollout, rows

pytestmark = [needs("openenv"), pytest.mark.slow]

GUESS = '''
import random
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State
from ..models import GuessAction, GuessObservation


class GuessEnvironment(Environment):
    """Guess a number from 1 to 9 in four guesses."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        self._state = State(episode_id="", step_count=0)

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._number = random.Random(seed).randint(1, 9)
        self._state = State(episode_id=episode_id or "", step_count=0)
        return GuessObservation(echoed_message="Guess.", message_length=0, done=False, reward=None)

    def step(self, action):
        self._state.step_count += 1
        difference = int(action.message) - self._number
        text = "right" if not difference else "too high" if difference > 0 else "too low"
        done = not difference or self._state.step_count == 4
        reward = 1.0 - 0.1 * self._state.step_count if not difference else -0.25
        return GuessObservation(echoed_message=text, message_length=len(text), done=done, reward=reward)

    @property
    def state(self):
        return self._state
'''

MCP = '''
from fastmcp import FastMCP
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.types import Observation, State


class ShelfEnvironment(MCPEnvironment):
    """A shelf with books."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server = FastMCP("shelf")

        @server.tool
        def put(title: str, copies: int = 1) -> str:
            """Put a book on the shelf."""
            self._books += copies
            return f"{self._books} books"

        super().__init__(server)
        self._books, self._state = 0, State(episode_id="", step_count=0)

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._books = 0
        return Observation(done=False, reward=0.0, metadata={"books": 0})

    def step(self, action, timeout_s=None, **kwargs):
        observation = super().step(action, timeout_s=timeout_s, **kwargs)
        observation.reward, observation.done = float(self._books), self._books >= 3
        return observation

    async def step_async(self, action, timeout_s=None, **kwargs):
        observation = await super().step_async(action, timeout_s=timeout_s, **kwargs)
        observation.reward, observation.done = float(self._books), self._books >= 3
        return observation

    def _step_impl(self, action, timeout_s=None, **kwargs):
        raise NotImplementedError

    @property
    def state(self):
        return self._state
'''
MCP_APP = """
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from .shelf_environment import ShelfEnvironment

app = create_app(ShelfEnvironment, CallToolAction, CallToolObservation, env_name="shelf")
"""


def written(name: str, folder: Path, code: str | None = None) -> Path:
    """Let `openenv init` write an environment, and replace its code."""
    command = [str(python_of("openenv").with_name("openenv")), "init", name]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    if code:
        (folder / name / "server" / f"{name}_environment.py").write_text(code)
    return folder / name


def directly(folder: Path, rollouts: list[tuple[int, list[str]]]) -> list[float]:
    """Return the sum of the rewards of the environment itself, until it is done, for each (seed, messages)."""
    program = f"""
import json, sys
from importlib import import_module
sys.path.insert(0, {str(folder.parent)!r})
name, kind = {folder.name!r}, {folder.name.title()!r}
environment = getattr(import_module(f"{{name}}.server.{{name}}_environment"), f"{{kind}}Environment")()
action = getattr(import_module(f"{{name}}.models"), f"{{kind}}Action")
totals = []
for seed, messages in json.load(sys.stdin):
    environment.reset(seed=seed)
    totals.append(0.0)
    for message in messages:
        observation = environment.step(action(message=message))
        totals[-1] += observation.reward or 0.0
        if observation.done:
            break
print(json.dumps(totals))
"""
    rewards: list[float] = in_family("openenv", program, rollouts)
    return rewards


def acts(*messages: str) -> list[Step]:
    return [("act", {"message": message}) for message in messages]


def found(seed: int) -> list[str]:
    """Return a wrong number and the right one."""
    number = random.Random(seed).randint(1, 9)
    return [str(number % 9 + 1), str(number)]


def played(name: str, seed: int, messages: list[str]) -> tuple[list[Action], float]:
    return as_actions(acts(*messages)), directly(Path(name).absolute(), [(seed, messages)])[0]


ROLLOUTS: Rollouts = {
    "echo": lambda row: played("echo", row["seed"], ["hello", "a longer text"]),
    "guess": lambda row: played("guess", row["seed"], found(row["seed"])),
}
"""The folders must be in the working directory; see `written`."""


def test_what_openenv_init_writes(tmp_path: Path) -> None:
    folder = written("echo", tmp_path)
    target = f"openenv:{folder}"
    kind = load_environment("it", target)
    assert [(spec.name, list(spec.parameters["properties"])) for spec in kind.specs] == [("act", ["message"])]
    rollouts = [(0, ["hello", "a longer text"]), (0, ["", "x"]), (0, [])]
    answers = [rollout(target, {"seed": seed}, acts(*messages)) for seed, messages in rollouts]
    assert all('"echoed_message": "Echo environment ready!"' in str(texts[0]) for texts, _ in answers)
    rewards = [reward for _, reward in answers]
    assert rewards == directly(folder, rollouts) == pytest.approx([1.5, 0.1, 0.0])


def test_rewards_equal_the_environments(tmp_path: Path) -> None:
    folder = written("guess", tmp_path, GUESS)
    target = f"openenv:{folder}"
    row = rows(target)[3]
    seed = row["seed"]
    rollouts: list[tuple[int, list[str]]] = [(seed, [str(number)]) for number in range(1, 10)]
    rollouts += [(seed, ["0"] * 4), (seed, [])]
    rewards = [rollout(target, row, acts(*messages))[1] for _, messages in rollouts]
    assert rewards == directly(folder, rollouts)
    assert sorted(rewards) == [-1.0] + [-0.25] * 8 + [0.0, 0.9]
    gold = rollouts[rewards.index(0.9)][1]
    with pytest.raises(ToolError, match="the episode is over"):
        rollout(target, row, acts(*gold, "1"))


def test_tools_of_an_mcp_environment(tmp_path: Path) -> None:
    folder = written("shelf", tmp_path, MCP)
    (folder / "server" / "app.py").write_text(MCP_APP)
    target = f"openenv:{folder}"
    assert [spec.name for spec in load_environment("it", target).specs] == ["put"]
    texts, reward = rollout(target, {"seed": 0}, [("put", {"title": "Emma"}), ("put", {"title": "Dune", "copies": 2})])
    assert "1 books" in str(texts[1])
    assert reward == 4.0


def test_a_server_that_runs(tmp_path: Path) -> None:
    written("echo", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [str(python_of("openenv")), "-m", "echo.server.app", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.1)
            assert rollout(f"openenv:http://127.0.0.1:{port}", {"seed": 0}, acts("hello"))[1] == 0.5
        finally:
            server.terminate()


def test_a_folder_without_an_environment(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"openenv:.* has no openenv\.yaml; create an environment with: openenv init"):
        load_environment("it", f"openenv:{tmp_path}")
