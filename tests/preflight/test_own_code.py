"""A user's own code is tried once on a real row; what raises there is named by file and line."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_rl.agents import registry
from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.data import write_parquet
from agent_rl.errors import ConfigError
from agent_rl.preflight import own_code
from agent_rl.preflight.check import Status
from agent_rl.preflight.own_code import function_problems, own_code_problems
from agent_rl.rewards import Reward
from agent_rl.rewards.user_function import UserFunction
from agent_rl.settings import AgentRLSettings
from agent_rl.settings.errors import Place
from agent_rl.tools import load_tools
from tests.launch.doctor.conftest import MakeCase
from tests.support.rows import sum_row

MINE = """\
from agent_rl import Component, Hooks, Reply, Tool, User
from agent_rl.errors import ToolError, UnscoredError
from agent_rl.rewards import Value


class Mine(Tool):
    name = "mine"
    description = "Finds."
    parameters = {"type": "object", "properties": {}}

    def __init__(self, config, create_kwargs):
        super().__init__(config, create_kwargs)
        self.size = 10 / create_kwargs.get("size", 1)

    async def start(self):
        start_tool(self)

    async def call(self, arguments):
        return "found"

    async def close(self):
        close_tool(self)


class MyHooks(Hooks):
    def __init__(self):
        make_hooks()

    async def before_turn(self, trajectory):
        raise RuntimeError("not called by a trial")


class Buyer(User):
    def __init__(self, config, row):
        super().__init__(config, row)
        make_user(row)

    async def start(self, opening):
        return start_user(opening)

    async def respond(self, message, trajectory):
        return Reply("no")


class Polite(Component):
    async def measure(self, trajectory):
        return measure(trajectory)


def compute(solution_str, ground_truth, extra_info):
    return score(solution_str, ground_truth)


def nothing(*values):
    return 0.0


start_tool = close_tool = make_hooks = make_user = start_user = score = nothing


def measure(trajectory):
    return Value(1.0)
"""

ARGUMENTS = {"mine": {"create_kwargs": {"size": 2}}}
ROW = sum_row(
    data_source="mine", agent_name="user_sim_agent", extra_info={"user": {"goal": "buy"}}, tools_kwargs=ARGUMENTS
)


def tried(folder: Path, bug: str = "", row: dict[str, Any] = ROW) -> list[str]:
    """The problems of the classes above with the lines of `bug` behind them."""
    file = folder / "mine.py"
    file.write_text(MINE + bug)
    (folder / "tools.yaml").write_text("tools:\n  - class_name: mine.py:Mine\n")
    section = {
        "hooks": f"{file}:MyHooks",
        "user_sim": {"user": f"{file}:Buyer"},
        "reward": {
            "correctness": {"scorer": f"{file}:compute"},
            "components": {"polite": {"kind": f"{file}:Polite", "weight": 0.5}},
        },
    }
    settings = AgentRLSettings.from_config({"agent_rl": section})
    setup = EpisodeSetup(settings, tools=load_tools(folder / "tools.yaml"))
    return [str(each) for each in own_code_problems(setup, [row], "react_agent", Reward(settings.reward))]


def test_the_custom_reward_function_is_tried_with_what_it_gets_in_a_run(tmp_path: Path) -> None:
    settings = AgentRLSettings.from_config({})
    place = Place("reward.custom_reward_function.name")

    def custom(solution_str, extra_info):  # type: ignore[no-untyped-def]
        return len(extra_info["trajectory"]["turns"]) * (extra_info["data_source"] == ROW["data_source"])

    def broken(solution_str, extra_info):  # type: ignore[no-untyped-def]
        return extra_info["missing"]

    row = {**ROW, "agent_name": "react_agent"}
    for function, problems in ((custom, []), (broken, ["reward.custom_reward_function failed at "])):
        found = function_problems(settings, row, "react_agent", UserFunction(function, place))
        assert [str(each).partition(str(Path(__file__)))[0] for each in found] == problems


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("start_tool", "tool mine: start"),
        ("close_tool", "tool mine: close"),
        ("make_hooks", "hooks: __init__"),
        ("make_user", "simulated user: __init__"),
        ("start_user", "simulated user: start"),
        ("measure", "component polite"),
        ("score", "scorer "),
    ],
)
def test_an_exception_is_named_by_what_was_tried_and_by_its_line(tmp_path: Path, name: str, what: str) -> None:
    (problem,) = tried(tmp_path, f"\n\ndef {name}(*values):\n    raise ValueError('no index')\n")
    line = len(MINE.splitlines()) + 4
    assert problem.startswith(what)
    assert f"failed at {tmp_path}/mine.py:{line}: ValueError: no index" in problem


def test_the_program_of_a_gateway_is_imported_by_its_interpreter(make_case: MakeCase, tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text("import langgraph_of_mine\n")
    keys = {"python": f"{sys.base_prefix}/bin/python3", "function": f"{tmp_path}/my_agent.py:run"}
    case = make_case({f"agent_rl.gateway.{name}": value for name, value in keys.items()})
    (finding,) = own_code.program(case)
    assert finding.status is Status.PROBLEM
    assert "No module named 'langgraph_of_mine'" in finding.text
    (tmp_path / "my_agent.py").write_text("def run(row, base_url, api_key): ...\n")
    assert [finding.status for finding in own_code.program(case)] == [Status.OK]


def test_all_that_is_wrong_is_named(tmp_path: Path) -> None:
    bug = "\n\ndef fails(*values):\n    raise KeyError('x')\n\n\nstart_tool = make_hooks = measure = score = fails\n"
    assert len(tried(tmp_path, bug)) == 4


def test_a_tool_gets_the_values_of_the_row(tmp_path: Path) -> None:
    row = {**ROW, "extra_info": {**ROW["extra_info"], "tools_kwargs": {"mine": {"create_kwargs": {"size": 0}}}}}
    (problem,) = tried(tmp_path, row=row)
    assert problem == f"tool mine: __init__ failed at {tmp_path}/mine.py:13: ZeroDivisionError: division by zero"


def test_a_component_that_returns_no_value_is_named_by_its_definition(tmp_path: Path) -> None:
    (problem,) = tried(tmp_path, "\n\ndef measure(trajectory):\n    return None\n")
    line = MINE.splitlines().index("    async def measure(self, trajectory):") + 1
    assert (
        f"failed at {tmp_path}/mine.py:{line}: TypeError: the component returned None, neither a Value nor a number"
        in problem
    )


@pytest.mark.parametrize(
    "error", ["ConnectionError('down')", "TimeoutError()", "UnscoredError('down')", "ToolError('x')"]
)
def test_outages_and_refusals_are_left_to_the_run(tmp_path: Path, error: str) -> None:
    assert tried(tmp_path, f"\n\ndef start_tool(*values):\n    raise {error}\n") == []


def test_a_component_may_read_what_it_reads_in_a_run(tmp_path: Path) -> None:
    reads = "trajectory.info['index'] + len(trajectory.turns) + int(trajectory.id.rpartition('_')[2])"
    assert tried(tmp_path, f"\n\ndef measure(trajectory):\n    return Value(float({reads}))\n") == []


def test_a_component_that_cannot_be_made_is_refused_with_its_line(tmp_path: Path) -> None:
    bug = "\n\nclass Polite(Polite):\n    def __init__(self, name, config):\n        raise OSError('no weights')\n"
    line = len(MINE.splitlines()) + 5
    with pytest.raises(Exception, match=rf"polite: __init__ failed at {tmp_path}/mine.py:{line}: OSError: no weights"):
        tried(tmp_path, bug)


def test_settings_of_an_agent_that_cannot_be_used_are_a_problem(tmp_path: Path) -> None:
    settings = AgentRLSettings.from_config({"agent_rl": {"folding": {"loop": "folding_agent"}}})
    (problem,) = own_code_problems(EpisodeSetup(settings), [{**ROW, "agent_name": "folding_agent"}], "react_agent")
    assert isinstance(problem, ConfigError)
    assert problem.key == "agent_rl.folding.loop"


SCRIPT = """
from agent_rl import Agent, Hooks, register_agent_loop
from agent_rl.agents.react import ReactFormat


class Mine(Hooks):
    async def before_trun(self, trajectory):
        return None


register_agent_loop(Agent("doctors_own", lambda settings, limits: ReactFormat(""), hooks=Mine))
"""


@pytest.fixture(autouse=True)
def no_agent_is_left() -> Iterator[None]:
    yield
    registry.registered.pop("doctors_own", None)


def found(make_case: MakeCase, rows: list[dict[str, Any]], folder: Path, script: str) -> list[Any]:
    write_parquet([{**row, "agent_name": "doctors_own"} for row in rows], folder / "rows.parquet")
    (folder / "train.py").write_text(script)
    case = make_case({f"data.{kind}_files": str(folder / "rows.parquet") for kind in ("train", "val")})
    object.__setattr__(case, "script", folder / "train.py")
    return list(own_code.own_code(case))


def test_agents_that_a_script_registers_are_tried(
    make_case: MakeCase, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    (finding,) = found(make_case, rows, tmp_path, SCRIPT)
    assert finding.status is Status.PROBLEM
    assert "train.py:7" in finding.text
    assert "Did you mean 'before_turn'" in finding.remedy


def test_a_script_that_trains_when_it_is_imported_is_not_run(
    make_case: MakeCase, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    (finding,) = found(make_case, rows, tmp_path, SCRIPT + "from verl.trainer.main_ppo import main\nmain()\n")
    assert finding.status is Status.SKIPPED
    assert "starts the training" in finding.text
