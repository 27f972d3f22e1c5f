from pathlib import Path

import pytest

from agent_rl.doctor.checks.prompts import KEY, lengths
from agent_rl.doctor.checks.tools import KEY as TOOLS
from agent_rl.doctor.finding import Status
from agent_rl.errors import ConfigError
from tests.doctor.checks.test_data import Rows, write
from tests.doctor.conftest import MakeCase, only


def longest(text: str) -> int:
    return int(text.removeprefix("at most ").split(" ")[0])


def test_prompts_are_counted_with_the_agents_instructions(make_case: MakeCase) -> None:
    with_instructions = only(lengths(make_case()))
    assert with_instructions.status is Status.OK
    without = only(lengths(make_case({"agent_rl.react.instructions": ""})))
    assert longest(without.text) + 200 < longest(with_instructions.text)


def test_each_agents_own_instructions_are_counted(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    def counted(agent: str, **keys: object) -> int:
        path = write(tmp_path / f"{agent}.parquet", [{**row, "agent_name": agent} for row in rows])
        given = {"data.train_files": path, "data.val_files": path, KEY: 4096, **keys}
        return longest(only(lengths(make_case(given))).text)

    plain = counted("single_turn_agent")
    assert counted("plan_act_agent") > counted("react_agent") > plain + 200
    assert counted("plan_act_agent", **{"agent_rl.plan_act.instructions": ""}) == plain


def test_an_agent_without_the_tool_that_it_needs(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [{**row, "agent_name": "search_agent"} for row in rows])
    (tmp_path / "tools.yaml").write_text("tools: [{name: calculator}, {name: python}]")
    case = make_case({"data.train_files": path, "data.val_files": path, TOOLS: str(tmp_path / "tools.yaml")})
    with pytest.raises(ConfigError, match=r"agent_rl\.search\.tool: there is no tool 'search'"):
        list(lengths(case))


def test_prompts_that_are_too_long(make_case: MakeCase) -> None:
    longest_prompt = longest(only(lengths(make_case())).text)
    some = only(lengths(make_case({KEY: longest_prompt - 1})))
    assert some.status is Status.WARNING
    assert some.remedy.startswith(f"Set {KEY}={longest_prompt},")
    assert only(lengths(make_case({KEY: longest_prompt}))).status is Status.OK
    assert only(lengths(make_case({KEY: 100}))).status is Status.PROBLEM


def test_without_what_it_needs(make_case: MakeCase, tmp_path: Path) -> None:
    for keys in ({"actor_rollout_ref.model.path": "some/model"}, {TOOLS: str(tmp_path / "none.yaml")}):
        assert only(lengths(make_case(keys))).status is Status.SKIPPED
    nowhere = {"data.train_files": "x.parquet", "data.val_files": "x.parquet"}
    assert only(lengths(make_case(nowhere))).status is Status.SKIPPED
