import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agent_rl.doctor.checks import data
from agent_rl.doctor.checks.data import PROMPT_TOKENS, lengths
from agent_rl.doctor.checks.tools import KEY as TOOLS
from agent_rl.launch import training
from agent_rl.preflight.check import Status
from tests.doctor.conftest import MakeCase, only, refused

Rows = list[dict[str, Any]]


def write(path: Path, rows: Rows) -> str:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def test_valid_data_files_pass(make_case: MakeCase) -> None:
    assert [finding.status for finding in data.files(make_case())] == [Status.OK, Status.OK]


def test_a_column_that_is_missing(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [{k: v for k, v in row.items() if k != "reward_model"} for row in rows])
    finding = next(data.files(make_case({"data.train_files": path})))
    assert finding.status is Status.PROBLEM
    assert "column reward_model: the column is missing" in finding.text


def test_a_column_of_another_type(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [{**row, "reward_model": {"ground_truth": True}} for row in rows])
    assert (
        "ground_truth: expected the right answer, not a boolean (value True)"
        in next(data.files(make_case({"data.train_files": path}))).text
    )


def test_rows_in_another_shape_are_said(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [{**row, "prompt": "What is 1+1?"} for row in rows])
    contract, shape = list(data.files(make_case({"data.train_files": path})))[:2]
    assert contract.status is Status.OK
    assert shape.status is Status.WARNING
    assert "a text as prompt became a user message" in shape.text


def test_a_file_that_is_not_there(make_case: MakeCase) -> None:
    case = make_case({"data.train_files": "nowhere/train.parquet"})
    assert refused(training.rows_are_there(case)).startswith(
        "data.train_files: there is no nowhere/train.parquet. Make"
    )


def test_an_order_that_does_not_fit_the_rows(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    assert list(data.order(make_case())) == []
    path = write(tmp_path / "x.parquet", [{**row, "data_source": f"set/{i % 4 == 0}"} for i, row in enumerate(rows)])
    files = {"data.train_files": path}
    assert only(data.order(make_case({**files, "agent_rl.data.order": "file"}))).text == "set/False 75%, set/True 25%"
    finding = only(data.order(make_case({**files, "agent_rl.data.weights": {"set/True": 1}})))
    assert finding.status is Status.PROBLEM
    assert "the data source 'set/False' has no weight" in finding.text
    finding = only(data.order(make_case({**files, "agent_rl.data.grow": {"function": "h.py:f", "threshold": 1}})))
    assert "there is no file" in finding.text


def test_rows_without_agent_name_take_the_default(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [{k: v for k, v in row.items() if k != "agent_name"} for row in rows])
    case = make_case({"data.train_files": path, "data.val_files": path})
    assert next(data.files(case)).status is Status.OK
    assert only(data.agents(case)).text == "react_agent (24 rows)"


def test_files_that_verl_cannot_join(make_case: MakeCase, rows: Rows, parquet: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "x.parquet", [{**row, "ability": 1.5} for row in rows])
    findings = list(data.files(make_case({"data.train_files": [str(parquet), other]})))
    assert any("differ in ability (string, double)" in finding.text for finding in findings)


def test_files_that_verl_joins_although_one_lacks_a_column(
    make_case: MakeCase, rows: Rows, parquet: Path, tmp_path: Path
) -> None:
    other = write(tmp_path / "x.parquet", [{key: row[key] for key in row if key != "ability"} for row in rows])
    findings = list(data.files(make_case({"data.train_files": [str(parquet), other]})))
    assert {finding.status for finding in findings} == {Status.OK}


def test_csv_is_refused_and_json_lines_are_checked(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("question,answer\n1+1,2\n")
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    files = {"data.train_files": str(tmp_path / "x.csv"), "data.val_files": str(tmp_path / "x.jsonl")}
    csv, lines = data.files(make_case(files))
    assert csv.status is Status.PROBLEM
    assert "verl reads .parquet, .json, .jsonl, not .csv" in csv.text
    assert "write_parquet" in csv.remedy
    assert lines.status is Status.OK
    assert "12 rows" in lines.text


def test_too_few_rows_for_a_step(make_case: MakeCase) -> None:
    finding = only(data.row_count(make_case({"data.train_batch_size": 13, "trainer.total_training_steps": None})))
    assert finding.status is Status.PROBLEM
    assert "12 rows are fewer than data.train_batch_size=13" in finding.text
    samples = only(data.row_count(make_case({"data.train_max_samples": 3})))
    assert samples.status is Status.PROBLEM


def test_the_steps_of_a_run(make_case: MakeCase) -> None:
    case = make_case({"data.train_batch_size": 5, "trainer.total_epochs": 3, "trainer.total_training_steps": None})
    assert data.total_steps(case) == 6
    assert "12 rows // 5 in a batch * 3 epochs" in only(data.row_count(case)).text
    assert data.total_steps(make_case({"trainer.total_training_steps": 7})) == 7
    assert data.total_steps(make_case({"data.train_files": "x.parquet", "trainer.total_training_steps": None})) == 0


def test_an_agent_that_is_not_registered_is_a_problem(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [{**row, "agent_name": "reakt_agent"} for row in rows])
    findings = [f for f in data.agents(make_case({"data.train_files": path})) if f.status is Status.PROBLEM]
    assert only(findings).text == "'reakt_agent' is not registered (12 rows)"
    assert "Did you mean 'react_agent'?" in only(findings).remedy


def test_a_tool_that_is_not_configured_is_a_problem(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    selected = [{**row["extra_info"], "tool_selection": ["calculator"]} for row in rows]
    good = write(
        tmp_path / "x.parquet", [{**row, "extra_info": info} for row, info in zip(rows, selected, strict=True)]
    )
    assert only(data.agents(make_case({"data.train_files": good}))).status is Status.OK
    given = [{**info, "tools_kwargs": {"serch": {"create_kwargs": {"top_k": 1}}}} for info in selected]
    bad = write(tmp_path / "y.parquet", [{**row, "extra_info": info} for row, info in zip(rows, given, strict=True)])
    message = refused(data.agents(make_case({"data.train_files": bad})))
    assert message.startswith("'serch' is not in the tool file (12 rows). ")
    broken = {"data.train_files": bad, TOOLS: str(tmp_path / "none.yaml")}
    assert only(data.agents(make_case(broken))).status is Status.OK  # the tool file's own check reports it


def test_rows_that_lack_their_user(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    talks = [{**row, "agent_name": "user_sim_agent"} for row in rows]
    for row in talks[1:]:
        row["extra_info"] = {**row["extra_info"], "user": {"replies": ["Yes."]}}
    some, all_of_them = write(tmp_path / "x.parquet", talks), write(tmp_path / "y.parquet", talks[1:])
    case = make_case({"data.train_files": some, "data.val_files": some})
    assert refused(data.users(case)).startswith("extra_info.user: the row has none")
    assert not list(data.users(make_case({"data.train_files": all_of_them, "data.val_files": all_of_them})))


def test_agents_of_the_users_script_are_known(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [{**row, "agent_name": f"mine_{i % 2}"} for i, row in enumerate(rows)])
    (tmp_path / "loops.yaml").write_text("- name: mine_0\n  _target_: a.b\n")
    script = tmp_path / "train.py"
    script.write_text("import agent_rl\n@agent_rl.register_agent_loop('mine_1')\nclass Loop: ...\n")
    keys = {"data.train_files": path, "data.val_files": path}
    keys |= {"actor_rollout_ref.rollout.agent.agent_loop_config_path": str(tmp_path / "loops.yaml")}
    case = make_case(keys)
    assert [f.text[:8] for f in data.agents(case)] == ["'mine_1'"]
    object.__setattr__(case, "script", script)
    assert only(data.agents(case)).status is Status.OK
    object.__setattr__(case, "script", tmp_path / "nothing.py")
    assert refused(data.agents(case)).startswith("--script: ")


def test_tools_that_the_default_loop_never_calls(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [{**row, "agent_name": "single_turn_agent"} for row in rows])
    findings = list(data.agents(make_case({"data.train_files": path, "data.val_files": path})))
    assert findings[-1].status is Status.WARNING


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
        given = {"data.train_files": path, "data.val_files": path, PROMPT_TOKENS: 4096, **keys}
        return longest(only(lengths(make_case(given))).text)

    plain = counted("single_turn_agent")
    assert counted("plan_act_agent") > counted("react_agent") > plain + 200
    assert counted("plan_act_agent", **{"agent_rl.plan_act.instructions": ""}) == plain


def test_an_agent_without_the_tool_that_it_needs(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [{**row, "agent_name": "search_agent"} for row in rows])
    (tmp_path / "tools.yaml").write_text("tools: [{name: calculator}, {name: python}]")
    case = make_case({"data.train_files": path, "data.val_files": path, TOOLS: str(tmp_path / "tools.yaml")})
    assert refused(lengths(case)).startswith("agent_rl.search.tool: there is no tool 'search'")


def test_prompts_that_are_too_long(make_case: MakeCase) -> None:
    longest_prompt = longest(only(lengths(make_case())).text)
    some = only(lengths(make_case({PROMPT_TOKENS: longest_prompt - 1})))
    assert some.status is Status.WARNING
    assert some.remedy.startswith(f"Set {PROMPT_TOKENS}={longest_prompt},")
    assert only(lengths(make_case({PROMPT_TOKENS: longest_prompt}))).status is Status.OK
    assert only(lengths(make_case({PROMPT_TOKENS: 100}))).status is Status.PROBLEM


def test_without_what_it_needs(make_case: MakeCase, tmp_path: Path) -> None:
    for keys in ({"actor_rollout_ref.model.path": "some/model"}, {TOOLS: str(tmp_path / "none.yaml")}):
        assert only(lengths(make_case(keys))).status is Status.SKIPPED
    nowhere = {"data.train_files": "x.parquet", "data.val_files": "x.parquet"}
    assert only(lengths(make_case(nowhere))).status is Status.SKIPPED
