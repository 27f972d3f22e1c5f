"""`agent-rl play`: a person with typed lines, or the expert, in an environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_rl.cli.main import app
from agent_rl.errors import AgentRLError
from tests.environments.sessions import LOCKERS

ROOM = '''\
from agent_rl import Environment


class Room(Environment):
    """Leave the room."""

    def rows(self, split, seed):
        yield {"prompt": "Go.", "code": 7}

    def reset(self, code, **row):
        self.code, self.is_open = code, False
        return "You wake up."

    def unlock(self, code: int, twice: bool = False) -> str:
        """Unlock the door."""
        self.done = self.is_open = code == self.code
        return "It opens." if self.is_open else "No."

    def step(self, message):
        return None if message == "goodbye" else f"echo: {message}"

    def get_reward(self):
        return {"open": float(self.is_open)}
'''


def play(*words: str, typed: str = "") -> str:
    done = CliRunner().invoke(app, ["play", *words], input=typed)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def room(tmp_path: Path) -> str:
    file = tmp_path / "room.py"
    file.write_text(ROOM)
    return str(file)


def test_the_expert_solves_the_example() -> None:
    shown = play(str(LOCKERS), "--expert")
    assert "Tools: look_up(number: integer), open(number: integer, code: integer)" in shown
    assert "> look_up(number=182)\nIts code is 5515.\n> open(number=182, code=5515)\nIt is open.\n> done\n" in shown
    assert shown.endswith("reward 1.0\n")


def test_typed_lines_are_calls_or_messages(room: str) -> None:
    lines = ["hello", "unlock(8)", "", "unlock(wrong)", 'unlock(code="x")', "unlock(code=7, twice=True)", "never read"]
    shown = play(room, typed="\n".join(lines) + "\n")
    start, _, rest = shown.partition("\n\nTools: ")
    assert start == "Leave the room.\n\nGo.\n\nYou wake up."
    assert rest.splitlines()[1:5] == ["> hello", "echo: hello", "> unlock(8)", "No."]
    assert "Error: the arguments must be literals" in rest
    assert "Error: code: Input should be a valid integer" in rest
    assert rest.endswith("> unlock(code=7, twice=True)\nIt opens.\nreward {'open': 1.0}\n")


def test_the_end_of_the_input_ends_the_episode(room: str) -> None:
    assert play(room, typed="hello\n").endswith("echo: hello\nreward {'open': 0.0}\n")
    assert play(room).endswith("reward {'open': 0.0}\n")


def test_json_has_the_turns_and_the_reward(room: str) -> None:
    played = json.loads(play(room, "--json", typed="hello\nunlock(7)\n"))
    assert played == {
        "turns": [{"text": "hello", "answer": "echo: hello"}, {"text": "unlock(7)", "answer": "It opens."}],
        "reward": {"open": 1.0},
    }
    expert = json.loads(play(str(LOCKERS), "--expert", "--json", "--row", "3", "--split", "test"))
    assert [turn["text"].partition("(")[0] for turn in expert["turns"]] == ["look_up", "open", "done"]
    assert expert["reward"] == 1.0


TRL = '''\
from PIL import Image


class Camera:
    def reset(self, place, **row):
        self.looks = 0
        return [{"type": "image", "image": Image.new("RGB", (8, 8))}, {"type": "text", "text": f" You see {place}."}]

    def look(self, direction: str) -> list:
        """Look in a direction.

        Args:
            direction: left or right.
        """
        self.looks += 1
        return [{"type": "image", "image": Image.new("RGB", (8, 8))}, {"type": "text", "text": direction}]


def looked(completions, environments, place, **kwargs):
    said = completions[0][-1]["content"] == place[0]
    called = completions[0][0].get("tool_calls")
    return [environments[0].looks + 10.0 * said + 100.0 * len(called or ())]
'''


def test_a_class_of_trl_with_its_reward_beside_it(tmp_path: Path) -> None:
    """As in the examples of TRL: no `get_reward`, and rows and reward are arguments of the trainer."""
    file, rows = tmp_path / "camera.py", tmp_path / "rows.jsonl"
    file.write_text(TRL)
    rows.write_text(json.dumps({"prompt": "Look.", "place": "a wall"}) + "\n")
    words, moves = (f"{file}:Camera", "--data", str(rows)), "look(direction='left')\na wall\n"
    shown = play(*words, "--reward", f"{file}:looked", typed=moves)
    assert shown.startswith("Look.\n\n<image> You see a wall.\n\nTools: look(direction: string)\n")
    assert "\n> look(direction='left')\n<image>left\n" in shown
    assert shown.endswith("reward {'looked': 111.0}\n")
    assert play(*words, typed=moves).endswith("reward none\n")
    with pytest.raises(AgentRLError, match=r"Drop --data and --reward"):
        play(str(LOCKERS), "--reward", f"{file}:looked")


def test_what_cannot_be_played_is_refused(room: str) -> None:
    with pytest.raises(AgentRLError, match=r"--row: there is no row 1: the train split has 1"):
        play(room, "--row", "1")
    with pytest.raises(AgentRLError, match="has no solve"):
        play(room, "--expert")
    with pytest.raises(AgentRLError, match=r"no\.py: there is no such file"):
        play("no.py")
