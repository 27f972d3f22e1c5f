"""What the README says is so: its code runs, its table is the settings, its files and targets exist."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import BaseModel

from agent_rl.agents.episode.budget import DEFAULT_MAX_TURNS
from agent_rl.agents.episode.episode import EpisodeBudget, run_episode
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.user_sim import UserSimFormat
from agent_rl.agents.users.user import load_user
from agent_rl.cli.main import app
from agent_rl.rewards import SCORERS, Reward, compute_score
from agent_rl.rewards.kinds import KINDS
from agent_rl.settings import TERMS, AgentRLSettings
from agent_rl.tools import ToolSession, load_tools
from agent_rl.tools.entry import BUILT_IN_TOOLS
from agent_rl.trajectory import StopReason, ToolCall, Trajectory
from tests.scoring import score

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def block(language: str, containing: str) -> str:
    """The fenced block of a language that contains a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (found,) = (text for text in blocks if containing in text)
    return found


def test_your_own_tool(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text(block("python", "my_tools.py"))
    (tmp_path / "my_tools.yaml").write_text(block("yaml", "my_tools.yaml"))

    async def use() -> list[str]:
        async with ToolSession(load_tools(tmp_path / "my_tools.yaml"), default_timeout_s=5) as session:
            calls = [ToolCall("counter", {"by": 2}), ToolCall("calculator", {"expression": "6*7"})]
            results = await session.run(calls) + await session.run([ToolCall("counter", {"by": 3})])
            return [result.text for result in results]

    assert asyncio.run(use()) == ["2", "42", "5"]


def test_a_simulated_user_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "my_users.py").write_text(block("python", "class Haggler"))
    user = load_user(f"{tmp_path}/my_users.py:Haggler", {})({}, {})

    async def talk() -> Trajectory:
        async with ToolSession([], default_timeout_s=5) as session:
            policy = ScriptedPolicy(["Message: $9, please.", "Message: $5 then."])
            messages = [{"role": "user", "content": "Hello."}]
            return await run_episode(policy, UserSimFormat(""), session, messages, EpisodeBudget(), user=user)

    trajectory = asyncio.run(talk())
    assert (len(trajectory.turns), trajectory.turns[0].observation, trajectory.verdict) == (2, "Too much.", 1.0)


def test_the_commands_have_the_flags_that_are_shown() -> None:
    lines = [line for text in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in logical_lines(text)]
    shown = [line.split() for line in lines if line.startswith("agent-rl ")]
    assert {words[1] for words in shown} >= {"train", "eval", "score", "audit", "doctor", "tools"}
    for words in shown:
        command: Any = typer.main.get_command(app)
        rest = words[1:]
        while hasattr(command, "commands"):
            command = command.commands[rest.pop(0)]
        known = {flag for parameter in command.params for flag in parameter.opts}
        assert {word for word in rest if re.match(r"--?[a-z]", word)} <= known, words


def logical_lines(text: str) -> list[str]:
    return re.sub(r"\s*\\\n\s*", " ", text).splitlines()


def test_the_reward() -> None:
    section = AgentRLSettings.from_config(yaml.safe_load(block("yaml", "kind: judge"))).reward
    assert set(section.components) == {"style", "taste", "steps"}
    reward = Reward(section, max_response_tokens=100)
    reward.require_scorers(["openai/gsm8k", "searchR1_nq"])
    told = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", README, re.MULTILINE))))
    assert told >= set(KINDS)
    (scorers,) = re.findall(r"function of yours. Scorers: (.*?)Your own", README, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", scorers)) == set(SCORERS)


def test_a_scorer_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "my_scorers.py").write_text(block("python", "my_scorers.py"))
    settings = {"correctness": {"scorer": f"{tmp_path}/my_scorers.py:score"}}
    right = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, answer="It is closed.", ground_truth="closed")
    assert score(right, settings).components["correctness"] == 1.0
    assert compute_score("my_company/tickets/7", "It is open.", "closed") == 0.0


def test_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(block("python", "PythonSandbox"))
    command = [sys.executable, str(tmp_path / "example.py")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert "stdout='45\\n'" in lines[0]
    assert lines[1:3] == ["42", ""]
    assert lines[3] == "1.0"
    assert "seccomp" in lines[4]


def test_the_table_of_tools_is_what_is_built_in() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|.*tool_configs", README, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(BUILT_IN_TOOLS)
    (table,) = re.findall(r"Beside it an entry may have:\n\n((?:\|.*\n)+)", README)
    assert set(re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)) == {
        "`name`, `description`, `parameters`",
        "`timeout_s`",
        "`max_concurrency`",
        "`retries`",
        "`cache`",
    }


@pytest.mark.trainer
def test_your_own_loop(tmp_path: Path) -> None:
    script = block("python", "my_train.py").split('if __name__ == "__main__"')[0]
    check = (
        "import verl.experimental.agent_loop.agent_loop as a\nfrom hydra.utils import get_class\n"
        "assert get_class(a._agent_loop_registry['my_agent']['_target_']) is MyAgent\n"
    )
    (tmp_path / "my_train.py").write_text(script + check)
    subprocess.run([sys.executable, "-W", "ignore", str(tmp_path / "my_train.py")], check=True, timeout=100)


def flat(model: BaseModel, prefix: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        found.update(flat(value, f"{prefix}.{name}") if isinstance(value, BaseModel) else {f"{prefix}.{name}": value})
    return found


def shown(value: object) -> str:
    if isinstance(value, tuple) and value:
        return ", ".join(value)
    return "null" if value is None else str(value) if value not in ({}, ()) else "none"


def test_the_table_of_settings_is_the_settings() -> None:
    rows = dict(re.findall(r"^\| `(agent_rl\.[\w.]+)` \| ([^|]+?) \|", README, re.MULTILINE))
    actual = {key: shown(value) for key, value in flat(AgentRLSettings(), "agent_rl").items()}
    assert "`agent_rl.reward.<name>.normalize`, `.clip`, `.gate`" in README
    for name in TERMS:
        for key in ("normalize", "clip", "gate"):
            assert actual.pop(f"agent_rl.reward.{name}.{key}") == "null"
    assert rows.keys() == actual.keys()
    for key, value in actual.items():
        assert rows[key] == value or float(rows[key]) == float(value), key
    assert f"max_assistant_turns` ({DEFAULT_MAX_TURNS} when null)" in README


def test_the_table_of_groups_is_what_the_package_has() -> None:
    rows = re.findall(r"^\| `(\w+)=` \| ([\w, ]+) \|", README, re.MULTILINE)
    told = {group: set(choices.split(", ")) for group, choices in rows if group != "size"}
    folders = [path for path in (ROOT / "agent_rl/config").iterdir() if path.is_dir() and path.name != "__pycache__"]
    groups = {folder.name: {file.stem for file in folder.glob("*.yaml")} for folder in folders}
    groups.pop("platform")  # VERL_PLATFORM chooses it
    assert told == groups


def test_named_files_and_targets_exist() -> None:
    for link in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / link).exists(), link
    for command in re.findall(r"(?:bash|python) ((?:recipes|data_preprocess)/[\w/.]+)", README):
        assert (ROOT / command).exists(), command
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"make (\w+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_text_of_the_quickstart_is_what_it_prints() -> None:
    source = (ROOT / "recipes/quickstart/quickstart.py").read_text()
    for label in re.findall(r"^([a-z ]+?)  +[-\d.]+ -> ", README, re.MULTILINE):
        assert f'"{label}"' in source, label
