"""`--json`: every command that prints a result has it, prints nothing else, and its help names the keys."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from agent_rl.cli.main import app
from agent_rl.data import arithmetic, write_parquet
from agent_rl.trajectory import trace
from tests.rewards.lab.episodes import problems, trajectories
from tests.support.cli import invoke

pytestmark = pytest.mark.slow

SERVERS = {"reward serve"}
"""It ends when it is interrupted, and prints its log."""

LOUD = """
from agent_rl.tools import Tool

print("the module is loaded")


class Loud(Tool):
    name = "loud"
    description = "Prints."
    parameters = {"type": "object", "properties": {}}

    async def call(self, arguments):
        print("the tool is called")
        return "quiet"
"""
COMMANDS = {
    "data show": ["rows.parquet", "-n", "2"],
    "new": ["tool", "scale"],
    "data check": ["rows.parquet", "--fix", "good.parquet"],
    "recipes": [],
    "recipes copy": ["gsm8k_calculator", "mine"],
    "report": ["run"],
    "reward score": ["trace.jsonl", "--limit", "4"],
    "reward attack": ["trace.jsonl", "--limit", "4", "--only", "padding"],
    "trace export": ["trace.jsonl", "--format", "jsonl"],
    "tools list": [],
    "tools check": ["loud.yaml"],
    "tools call": ["loud.yaml", "loud"],
    "tools expand": ["loud.yaml"],
}


def leaves(command: Any, *words: str) -> Iterator[tuple[str, Any]]:
    """All commands, by their words."""
    below = command.list_commands(None) if hasattr(command, "list_commands") else []
    if words and (not below or command.invoke_without_command):
        yield " ".join(words), command
    for name in below:
        yield from leaves(command.get_command(None, name), *words, name)


ALL = dict(leaves(typer.main.get_command(app)))


def documented(name: str) -> set[str]:
    """The keys that a command's help names, without those of nested mappings."""
    (text,) = re.findall(r"^--json: (.+)$", ALL[name].help, re.MULTILINE)
    while (flat := re.sub(r"\([^()]*\)", "", text)) != text:
        text = flat
    return set(re.findall(r"`([\w-]+)`", text))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("json")
    write_parquet(
        [arithmetic.to_row(each, "train", i) for i, each in enumerate(arithmetic.generate(0, 4))],
        folder / "rows.parquet",
    )
    for trajectory in trajectories(problems(1)):
        trace.append(folder / "trace.jsonl", trajectory)
    (folder / "run").mkdir()
    shutil.copy(folder / "trace.jsonl", folder / "run")
    (folder / "run/metrics.jsonl").write_text('{"step": 1, "data": {"critic/score/mean": 0.5}}\n')
    (folder / "loud.py").write_text(LOUD)
    (folder / "loud.yaml").write_text("tools: [{class_name: 'loud.py:Loud'}]")
    return folder


def test_every_command_that_prints_a_result_has_json() -> None:
    for name in set(ALL) - SERVERS - {"data convert"}:  # which is a script's command line
        assert any("--json" in parameter.opts for parameter in ALL[name].params), name
        assert name == "train" or documented(name), name  # which prints a line for each step


@pytest.mark.parametrize("name", COMMANDS)
def test_the_keys_are_those_that_the_help_names(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    done = invoke(*name.split(), *COMMANDS[name], "--json")
    assert set(json.loads(done.stdout)) == documented(name) - (
        {"left_out"} if name == "trace export" else set()
    )  # of sft
    if name == "tools call":
        assert "the tool is called" in done.stderr
