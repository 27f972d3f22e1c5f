"""What a run keeps of a trajectory in which the user's code raised; the manager's test runs the command."""

import shlex
from pathlib import Path

import yaml

from agent_rl.rewards.repeating import repeatable
from agent_rl.settings.user_code import UserCodeError
from agent_rl.trajectory import StopReason, Trajectory, trace

CONFIG = {"agent_rl": {"reward": {"components": {"x": {"kind": "mine.py:X"}}}}, "data": {"max_response_length": 8}}


def failed(id: str, folder: Path) -> UserCodeError:
    trajectory = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, id=id, row={"level": 3})
    error = UserCodeError("x", "mine.py:3", "KeyError: 'a'", "Traceback", f"The trajectory is {id!r}")
    return repeatable(error, trajectory, folder, CONFIG)


def test_the_samples_of_a_prompt_share_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "new/failed rewards"
    error = failed("u-1_0", folder)
    assert str(error) == str(failed("u-1_1", folder)).replace("u-1_1", "u-1_0")
    text, _, command = str(error).partition(". Repeat the call with: ")
    assert text == "x failed at mine.py:3: KeyError: 'a'. The trajectory is 'u-1_0'"
    *words, file, _, config = shlex.split(command)
    assert words == ["agent-rl", "reward", "score"]
    assert [(each.id, each.row) for each in trace.read(file)] == [("u-1_0", {"level": 3}), ("u-1_1", {"level": 3})]
    assert yaml.safe_load(Path(config).read_text()) == CONFIG


def test_a_folder_that_cannot_be_written_leaves_the_error_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = str(failed("u_0", tmp_path / "file"))
    assert text.startswith(
        "x failed at mine.py:3: KeyError: 'a'. The trajectory is 'u_0'. The trajectory could not be stored"
    )
