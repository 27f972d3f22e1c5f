import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from omegaconf import OmegaConf

import agent_rl
from agent_rl.cli import main
from agent_rl.cli.main import GROUPS
from agent_rl.errors import ConfigError
from tests.support import forks
from tests.support.cli import invoke

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != "VERL_PLATFORM"} | environment
    return subprocess.run(
        [sys.executable, "-m", "agent_rl.cli.main", *arguments], capture_output=True, text=True, env=env
    )


def test_help_lists_the_commands() -> None:
    """On one screen, grouped by what people do; a sentence for each command, none of them cut off."""
    done = cli("--help", COLUMNS="80")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    listed = [(line[2:9].strip(), line[9:20].strip(), line[20:]) for line in lines[2:] if line.startswith("  ")]
    listed = [each for each in listed if not each[0].startswith("-")]
    commands = {file.stem for file in ROOT.glob("agent_rl/cli/[!_]*.py")} - {"main"}
    assert {name for _, name, _ in listed} == commands
    assert tuple(group for group, _, _ in listed if group) == GROUPS
    assert all(len(text) > 10 and not text.endswith("...") for _, _, text in listed)
    assert "completion" not in invoke("tools", "--help").stdout
    assert "\b" not in invoke("train", "--help").stdout.replace("\\b", "\b")  # the mark of lines that are kept
    assert invoke("--version").stdout.strip() == agent_rl.__version__


def test_no_line_of_any_help_is_wider_than_a_terminal() -> None:
    """Examples can be copied, and options have one form."""

    def check(command: Any, words: list[str]) -> None:
        text = invoke(*words, "--help").stdout
        assert not [line for line in text.splitlines() if len(line) > 80], words
        assert not re.findall(r"<bool>|\w range>|list\[|default: None|--\S+ [A-Z]+ ", text.replace("--set KEY=", "")), (
            words
        )
        for name, below in getattr(command, "commands", {}).items():
            check(below, [*words, name])

    group = typer.main.get_command(main.app)
    context = click.Context(group)
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        check(group.get_command(context, name), [name])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data", "chek"], "error: No such command 'chek'. Did you mean 'check'? See agent-rl data --help"),
        (["data", "check"], "error: Missing argument 'FILE...'. See agent-rl data check --help"),
        (["view", "a", "--port", "x"], "error: Invalid value for '--port': "),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], said: str) -> None:
    done = cli(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def test_help_is_light() -> None:
    """CPU time, which a busy machine does not change much; and nothing heavy is imported for it."""
    code = (
        "import contextlib, os, sys\nfrom agent_rl.cli.main import main\nsys.argv = ['agent-rl', '--help']\n"
        "with contextlib.suppress(SystemExit):\n    main()\n"
        "heavy = {'omegaconf', 'pydantic', 'numpy', 'torch', 'verl', 'ray', 'transformers'} & set(sys.modules)\n"
        "print(sum(os.times()[:2]), *heavy)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, *heavy = done.stdout.splitlines()[-1].split()
    assert heavy == []
    assert float(seconds) < 1.0  # 0.25 on a quiet core


GSM8K = str(ROOT / "recipes" / "gsm8k_calculator")


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("agent-rl train gsm", "gsm8k_calculator"),
        ("agent-rl eval --loop code", "code_act_agent"),
    ],
)
def test_the_shell_completes(line: str, completed: str) -> None:
    words = line.split()
    asked = {"_AGENT_RL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    code = "import sys\nfrom agent_rl.cli.main import main\nsys.argv = ['agent-rl']\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **asked}, cwd=ROOT
    )
    assert done.stdout.split() == [completed]


def test_a_dry_run_prints_yaml_for_a_pipe_and_the_command_line_beside_it() -> None:
    done = cli("train", GSM8K, "trainer.total_epochs=7", "--dry-run")  # nothing runs, so no GPU is needed
    assert done.returncode == 0
    composed = OmegaConf.create(done.stdout)
    assert (composed.trainer.total_epochs, composed.trainer.experiment_name) == (7, "gsm8k_calculator")
    assert "verl.trainer.main_ppo" in done.stderr
    assert done.stderr.strip().endswith("trainer.total_epochs=7")


def test_a_wrong_key_is_refused_before_anything_heavy_is_imported() -> None:
    code = (
        "import sys\nfrom agent_rl.cli import main as cli\n"
        f"sys.argv = ['agent-rl', 'train', {GSM8K!r}, 'trainer.nnode=2']\n"
        "try:\n    cli.main()\n"
        "except SystemExit as end:\n    print(end.code, {'torch', 'verl', 'ray', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "trainer.nnode: unknown key. Did you mean 'trainer.nnodes'" in done.stderr
    assert done.stdout == "2 set()\n"


CALCULATOR = str(ROOT / "tool_configs" / "calculator.yaml")


def test_tools_call_answers_as_the_policy_would_see_it() -> None:
    done = invoke("tools", "call", CALCULATOR, "calculator", '{"expression": "6*7"}')
    assert (done.exit_code, done.stdout) == (0, "42\n")
    assert done.stderr.startswith("[ok, ")
    done = invoke("tools", "call", CALCULATOR, "calculator", '{"expresion": "6*7"}')
    assert done.exit_code == 1
    assert "expression" in done.stdout
    assert done.stderr.startswith("[invalid_arguments, ")
    with pytest.raises(ConfigError, match="ARGUMENTS: this is not JSON"):
        invoke("tools", "call", CALCULATOR, "calculator", "6*7")


@pytest.mark.trainer
def test_a_call_of_a_verl_tool(tmp_path: Path) -> None:
    source = """
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse
class Foreign(BaseTool):
    async def execute(self, instance_id, parameters, **kwargs):
        return ToolResponse(text="from verl"), 0.5, {}
"""
    schema = "{type: function, function: {name: foreign, description: d, parameters: {type: object, properties: {}}}}"
    (tmp_path / "foreign.py").write_text(source)
    (tmp_path / "tools.yaml").write_text(f"tools: [{{class_name: 'foreign.py:Foreign', tool_schema: {schema}}}]")
    done = forks.agent_rl("tools", "call", tmp_path / "tools.yaml", "foreign")
    assert "from verl" in done.stdout
    assert "reward 0.5" in done.stderr


def test_an_expanded_tool_file_can_be_read(here: Path) -> None:
    for words in ([], ["--json"]):
        Path("tools.yaml").write_text(invoke("tools", "expand", CALCULATOR, *words).stdout)
        listed = invoke("tools", "check", "tools.yaml").stdout
        assert listed == "tools.yaml: 1 tool\n  calculator(expression: string)\n"


def test_a_recipe_that_is_no_yaml_is_named_and_its_traceback_is_shown_on_demand(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("defaults: [agent, _self_]\ndata:\n  train_files: [a\nb: 1\n")
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/config\.yaml:4:2: invalid YAML: "):
        invoke("train", str(tmp_path))
    debugged = cli("train", str(tmp_path), "--debug", VERL_PLATFORM="cpu")
    assert debugged.returncode == 1
    assert "Traceback (most recent call last)" in debugged.stderr
    (tmp_path / "size").mkdir()
    (tmp_path / "size/small.yaml").write_text("# @package _global_\ndata: {a: 1\n")
    (tmp_path / "config.yaml").write_text(
        "hydra: {searchpath: [pkg://agent_rl.config, pkg://verl.trainer.config]}\n"
        "defaults: [agent, size: small, _self_]\n"
    )
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/size/small\.yaml:3:1: invalid YAML: "):
        invoke("train", str(tmp_path))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1?", "ground_truth": "2", "data_source": "gsm8k"}')
    place = ["agent_rl.run.folder=/dev/null/run", "actor_rollout_ref.model.path=none"]
    place += [f"data.{kind}_files={tmp_path}/rows.jsonl" for kind in ("train", "val")]
    with pytest.raises(NotADirectoryError) as caught:
        invoke("train", GSM8K, *place)
    assert main._line(caught.value).startswith("/dev/null/run: Not a directory. Pass a")


@pytest.mark.parametrize(
    ("file", "place"), [(None, "on a disk that this command writes to"), ("out/x.json", "for out/x.json")]
)
def test_a_full_disk_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: str | None, place: str
) -> None:
    def fail(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", file)

    monkeypatch.setattr(main, "app", fail)
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which the entry point adds
    with pytest.raises(SystemExit, match="1"):
        main.main()
    said = f"error: no space is left {place} (No space left on device). Free some space, and run the command again\n"
    assert capsys.readouterr().err == said


def test_modules_of_the_working_directory_are_found(tmp_path: Path) -> None:
    """As by the trainer, which starts as `python -m`."""
    (tmp_path / "my_tools.py").write_text("from agent_rl.tools.builtin.calculator import Calculator as Mine\n")
    (tmp_path / "tools.yaml").write_text("tools: [{name: mine, class_name: my_tools.Mine}]")
    command = [Path(sys.executable).with_name("agent-rl"), "tools", "check", "tools.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "mine(expression: string)" in done.stdout
