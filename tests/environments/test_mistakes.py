"""Mistakes in the file of a task: one line names the file and the line, or the method, and the remedy.

Each is a change of a class that works. The messages come from `agent-rl train FILE --dry-run`, before anything imports
verl or Ray: with `--light`, these tests fail if something does.
"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_rl.cli.main import app
from agent_rl.errors import AgentRLError

WORKS = '''\
import asyncio, math, random, signal, time
from agent_rl import Environment


class Safe(Environment):
    """Open the safe."""

    def rows(self, split, seed):
        for number in range(64):
            yield {"prompt": f"Open safe {number} ({split}).", "code": 100 + number}

    def reset(self, code, **row):
        self.code, self.is_open = code, False

    def open(self, code: int) -> str:
        """Open the safe with its code."""
        self.is_open = code == self.code
        return "It is open." if self.is_open else "It stays shut."

    def get_reward(self):
        return float(self.is_open)

    def solve(self):
        self.open(self.code)
'''


def line(text: str) -> int:
    """The line of the class above that has this text."""
    return WORKS[: WORKS.index(text)].count("\n") + 1


CLASS, ROWS, RESET = (line(text) for text in ("class Safe", "def rows", "def reset"))
OPEN, REWARD, SOLVE = (line(text) for text in ("def open", "def get_reward", "def solve"))

MISTAKES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "no_reward": (
        "    def get_reward(self):\n        return float(self.is_open)\n", "",
        (f"Safe (FILE:{CLASS}) has no get_reward", "Define get_reward(self)"),
    ),
    "misspelled_reward": (
        "get_reward", "get_rewards", (f"Safe (FILE:{CLASS}) has no get_reward", "Rename get_rewards, if")
    ),
    "misspelled_reset": (
        "reset", "rests", (f"Safe.rests: the tool (FILE:{RESET}) has no docstring", "Did you mean reset?")
    ),
    "misspelled_rows": ("rows", "rowes", (f"Safe (FILE:{CLASS}) has no rows", "Rename rowes, if")),
    "no_docstring": (
        '    """Open the safe."""\n', "", (f"Safe (FILE:{CLASS}) has no docstring", "Describe the task in a docstring")
    ),
    "tool_without_docstring": (
        '        """Open the safe with its code."""\n', "",
        (f"Safe.open: the tool (FILE:{OPEN}) has no docstring", "Write a docstring for the tool"),
    ),
    "tool_without_types": (
        "code: int", "code",
        (f"open (FILE:{OPEN}): the 'code' parameter has no type hint", "Write, for example, `code: str`")
    ),
    "type_without_schema": (
        "code: int", "code: asyncio.Lock",
        (f"open (FILE:{OPEN}): a type hint has no JSON schema", "Use JSON types")
    ),
    "tool_returns_nothing": (
        'return "It is open." if self.is_open else "It stays shut."', "pass",
        (f"open (FILE:{OPEN}) returns nothing", "Return the text that the policy reads"),
    ),
    "tool_returns_none": (
        'else "It stays shut."', "else None", (f"Safe.open failed at FILE:{OPEN}", "it must return text for the policy")
    ),
    "step_without_message": (
        "    def get_reward", "    def step(self):\n        pass\n\n    def get_reward",
        (f"Safe.step (FILE:{REWARD}) cannot be called", "Write def step(self, message)"),
    ),
    "shared_state": (
        "    def rows", "    opened = []\n\n    def rows",
        (f"Safe.opened (FILE:{CLASS}) is a list that all trajectories share", "Set self.opened in reset"),
    ),
    "mutable_default": (
        "code: int", "code: int, seen: list[int] = []",
        (f"Safe.open (FILE:{OPEN}): the default of 'seen' is shared", "Write seen=None"),
    ),
    "blocking_call": (
        '    def open(self, code: int) -> str:\n        """Open the safe with its code."""\n',
        '    async def open(self, code: int) -> str:\n        """Open it with its code."""\n        time.sleep(1)\n',
        (f"Safe.open (FILE:{OPEN + 2}) calls time.sleep in an async method", "Write def instead of async def"),
    ),
    "question_at_the_terminal": (
        "self.is_open = code ==", "code = int(input())\n        self.is_open = code ==",
        (f"Safe.open (FILE:{OPEN + 2}) calls input", "Remove the call"),
    ),
    "alarm": (
        "self.is_open = code ==", "signal.alarm(3)\n        self.is_open = code ==",
        (f"Safe.open (FILE:{OPEN + 2}) calls signal.alarm, which fails outside the main thread", "tool_timeout_s"),
    ),
    "row_without_a_column": (
        "def reset(self, code, **row)", "def reset(self, code, colour, **row)",
        (f"train row 0, reset (FILE:{RESET}): missing a required argument: 'colour'", "The row has prompt, code"),
    ),
    "column_that_reset_does_not_take": (
        "def reset(self, code, **row)", "def reset(self, code)",
        (f"train row 0, reset (FILE:{RESET}): got an unexpected keyword argument 'prompt'", "add **row to reset"),
    ),
    "row_without_prompt": (
        '"prompt"', '"question"',
        (f"Safe.rows (FILE:{ROWS}), train row 0: it has the keys question, code, but no prompt", "Yield a dict"),
    ),
    "prompt_that_is_not_text": (
        'f"Open safe {number} ({split})."', "number",
        (f"Safe.rows (FILE:{ROWS}), train row 0: its prompt is 0", "Write text, or a list of chat messages"),
    ),
    "no_test_rows": (
        "range(64)", "range(64 if split == 'train' else 0)",
        (f"Safe.rows (FILE:{ROWS}): there are no rows in the 'test' split", "Yield at least one row"),
    ),
    "rows_without_yield": (
        "yield {", "row = {",
        (f"Safe.rows failed at FILE:{ROWS}", "'NoneType'", "which must yield a dict for each row"),
    ),
    "rows_raise": (
        "100 + number", "100 / number",
        (f"Safe.rows failed at FILE:{ROWS + 2}: ZeroDivisionError", "which must yield a dict for each row"),
    ),
    "reset_raises": (
        "self.code, self.is_open = code", "self.code, self.is_open = row['key']",
        (f"Safe.reset failed at FILE:{RESET + 1}: KeyError: 'key'", "Correct the method"),
    ),
    "reset_differs": (
        "self.code, self.is_open = code,", "self.code, self.is_open = random.random(),",
        (f"Safe.reset (FILE:{RESET}): two calls differ in self.code", "Draw from self.random"),
    ),
    "reward_of_none": (
        "return float(self.is_open)", "return 1.0 if self.is_open else None",
        (f"Safe.get_reward failed at FILE:{REWARD}", "it returned None, not a finite number"),
    ),
    "expert_that_does_not_solve": (
        "self.open(self.code)", "self.open(7)",
        (f"Safe.solve (FILE:{SOLVE}): solve has a mean reward of 0.00", "Correct solve or get_reward"),
    ),
    "expert_raises": (
        "self.open(self.code)", "self.opens()",
        (f"Safe.solve failed at FILE:{SOLVE + 1}: AttributeError", "Correct the expert so that it solves every row"),
    ),
    "not_an_environment": (
        WORKS[WORKS.index("class Safe") :], "class Safe:\n    pass\n",
        (f"FILE defines no subclass of agent_rl.Environment, only Safe (FILE:{CLASS})", "Derive the class of the task"),
    ),
    "two_classes": (
        "class Safe", 'class Box(Environment):\n    """Open the box."""\n\n\nclass Safe',
        (f"FILE defines several environments: Box (FILE:{CLASS}), Safe (FILE:{CLASS + 4})", "Name one: FILE:Box"),
    ),
    "name_of_an_attribute": (
        "def open", "def answer",
        (f"Safe.answer (FILE:{OPEN}) hides answer of agent_rl.Environment", "Give the method another name"),
    ),
    "no_tool": (
        "def open", "def _open", (f"Safe (FILE:{CLASS}) has no tool", "Define a public method")
    ),
    "broken_file": (
        "def rows(self", "def rows(self(", (f"importing 'FILE' failed at FILE:{ROWS}: SyntaxError", "Fix the module")
    ),
}  # fmt: skip
"""A text of the class, what is written there by mistake, and the parts of the message."""


def message(*words: str) -> str:
    """What the command says, which must be one line."""
    done = CliRunner().invoke(app, words)
    assert done.exit_code in (1, 2), done.output
    assert isinstance(done.exception, AgentRLError), done.output
    text = str(done.exception)
    assert "\n" not in text
    assert len(text) < 500
    return text


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    """The folder of the file, and of the runs."""
    return here


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_with_its_line_and_its_remedy(name: str, folder: Path) -> None:
    right, wrong, parts = MISTAKES[name]
    assert right in WORKS
    file = folder / "safe.py"
    file.write_text(WORKS.replace(right, wrong))
    said = message("train", str(file), "--dry-run")
    for part in parts:
        assert part.replace("FILE", str(file)) in said
    assert str(file) in said


@pytest.mark.parametrize(
    ("task", "parts"),
    [
        ("safes.py", ("safes.py: there is no such file", "agent-rl new task safes")),
        ("safe.py:Save", ("has no 'Save'", "Did you mean 'Safe'?")),
        ("safe.py:random", ("is not a subclass of agent_rl.Environment", "Name the class of the task")),
        ("nosuchfamily:Maze", ("unknown family of environments 'nosuchfamily'", "Known: ")),
    ],
)
def test_a_task_that_does_not_exist(task: str, parts: tuple[str, ...], folder: Path) -> None:
    (folder / "safe.py").write_text(WORKS)
    said = message("train", task, "--dry-run")
    for part in parts:
        assert part in said


def test_a_tool_of_the_tool_file_with_the_name_of_a_method(folder: Path) -> None:
    file, tools = folder / "safe.py", folder / "tools.yaml"
    file.write_text(WORKS)
    function = 'def open(code: int) -> str:\n    """Open."""\n    return str(code)\n'
    (folder / "mine.py").write_text(function)
    tools.write_text("tools:\n  - function: mine.py:open\n")
    key = "actor_rollout_ref.rollout.multi_turn.tool_config_path"
    said = message("train", str(file), "--dry-run", f"{key}={tools}")
    assert said == f"{key}: {tools} and Safe.open ({file}:{OPEN}) both define the tool 'open'. Rename one of them"


def test_without_an_expert_a_cpu_needs_a_model(folder: Path) -> None:
    file = folder / "safe.py"
    file.write_text(WORKS[: WORKS.index("    def solve")])
    said = message("train", str(file), "--dry-run")
    assert f"Safe (FILE:{CLASS}) has no solve, which a small model needs".replace("FILE", str(file)) in said
    assert "Define solve(self), or name a model with --model" in said


@pytest.mark.trainer
def test_a_class_with_reset_alone_is_taken_for_one_of_trl(folder: Path) -> None:
    file = folder / "safe.py"
    file.write_text(WORKS.replace("Safe(Environment)", "Safe"))
    said = message("train", str(file), "--dry-run")
    assert f"TRL cannot describe the tool open ({file}:{OPEN})" in said
    assert "derive the class from agent_rl.Environment" in said


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--model", "mine"), ("actor_rollout_ref.model.path=mine",)])
def test_a_model_of_the_user_needs_no_expert(words: tuple[str, ...], folder: Path) -> None:
    file = folder / "safe.py"
    file.write_text(WORKS[: WORKS.index("    def solve")])
    done = CliRunner().invoke(app, ("train", str(file), "--dry-run", "--json", *words))
    composed = json.loads(done.stdout)["configuration"]
    assert composed["actor_rollout_ref"]["model"]["path"] == "mine"
    assert "cold_start" not in composed["agent_rl"]
