import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.checks import data
from agent_rl.launch.doctor.checks.data import PROMPT_TOKENS, lengths
from agent_rl.launch.doctor.checks.tools import KEY as TOOLS
from agent_rl.preflight.check import Status
from agent_rl.rewards.user_function import CUSTOM_FUNCTION
from tests.launch.doctor.conftest import MakeCase, only, refused, worst

Rows = list[dict[str, Any]]
WithRows = Callable[..., Case]
ROLLOUT = "actor_rollout_ref.rollout"


def write(path: Path, rows: Rows) -> str:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


@pytest.fixture
def with_rows(make_case: MakeCase, tmp_path: Path) -> WithRows:
    """A case whose training rows, and validation rows, are these."""

    def make(rows: Rows, keys: dict[str, Any] | None = None) -> Case:
        path = write(tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet", rows)
        return make_case({"data.train_files": path, "data.val_files": path, **(keys or {})})

    return make


def test_valid_data_files_pass(make_case: MakeCase) -> None:
    for check in (data.files, data.rows_of_files):
        assert only(check(make_case())).status is Status.OK


def info(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**row, "extra_info": {**row["extra_info"], **more}}


@pytest.mark.parametrize(
    ("change", "keys", "text", "remedy"),
    [
        (lambda row: {key: row[key] for key in row if key != "reward_model"}, {},
         "row contract, 12 of 12 rows: {}, row 0: column reward_model: the column is missing", "make_row"),
        (lambda row: info(row, tools_kwargs={"serch": {"create_kwargs": {"top_k": 1}}}), {},
         "tool, 12 of 12 rows: {}, row 0: 'serch' is not in the tool file", "Known: calculator"),
        (lambda row: info(row, tool_selection=["calculater"]), {},
         "tool, 12 of 12 rows: {}, row 0: 'calculater'", "Did you mean 'calculator'"),
        (lambda row: {**row, "agent_name": "raect_agent"}, {},
         "agent, 12 of 12 rows: {}, row 0: 'raect_agent'", "Did you mean 'react_agent'"),
        (lambda row: {**row, "data_source": "my/own"}, {},
         "scorer, 12 of 12 rows: {}, row 0: ", "agent_rl.reward.correctness.scorer"),
        (lambda row: {**row, "reward_model": {"ground_truth": "Paris"}}, {},
         "ground truth, 12 of 12 rows: {}, row 0: data_source 'gsm8k': the row cannot be judged", "another scorer"),
        (lambda row: {**row, "prompt": [{"role": "user", "content": "1+1?"}]}, {}, "a different ground truth", "Keep"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_rows_is_counted_with_the_first_place(
    with_rows: WithRows, rows: Rows, change: Any, keys: dict[str, Any], text: str, remedy: str
) -> None:
    case = with_rows([change(row) for row in rows], keys)
    finding = only(data.rows_of_files(case))
    assert (finding.status, finding.subject) == (Status.PROBLEM, "rows")
    assert text.format(case.shown(case.train[0].path)) in finding.text
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"agent_name": None}, {}),
        ({"reward_model": {"ground_truth": "Paris"}}, {f"{CUSTOM_FUNCTION}.path": "mine.py"}),
        ({"data_source": "my/own"}, {"agent_rl.reward.correctness.scorer": "gsm8k"}),
    ],
)
def test_rows_that_the_run_can_use_pass(
    with_rows: WithRows, rows: Rows, change: dict[str, Any], keys: dict[str, Any]
) -> None:
    assert only(data.rows_of_files(with_rows([{**row, **change} for row in rows], keys))).status is Status.OK


def test_tools_are_not_looked_for_where_their_file_cannot_be_read(
    with_rows: WithRows, rows: Rows, tmp_path: Path
) -> None:
    selected = [info(row, tool_selection=["calculator"]) for row in rows]
    for keys in ({}, {TOOLS: str(tmp_path / "none.yaml")}):
        assert only(data.rows_of_files(with_rows(selected, keys))).status is Status.OK


def test_a_scorer_of_the_user_is_not_called_for_every_row(make_case: MakeCase, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def score(solution_str, extra_info): assert solution_str; return 1\n")
    keys = {"agent_rl.reward.correctness.scorer": f"{tmp_path / 'mine.py'}:score"}
    assert only(data.rows_of_files(make_case(keys))).status is Status.WARNING  # another row's answer scores 1


def test_rows_in_another_shape_are_said(with_rows: WithRows, rows: Rows) -> None:
    finding = next(data.files(with_rows([{**row, "prompt": "What is 1+1?"} for row in rows])))
    assert finding.status is Status.WARNING
    assert "a prompt given as text became a user message" in finding.text


def test_files_that_verl_cannot_join(make_case: MakeCase, rows: Rows, parquet: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "x.parquet", [{**row, "ability": 1.5} for row in rows])
    shorter = write(tmp_path / "y.parquet", [{key: row[key] for key in row if key != "ability"} for row in rows])
    for second, status in ((other, Status.PROBLEM), (shorter, Status.OK)):
        finding = worst(data.files(make_case({"data.train_files": [str(parquet), second]})))
        assert finding is not None
        assert finding.status is status
        assert ("differ in ability (string, double)" in finding.text) == (status is Status.PROBLEM)


def test_csv_is_refused_and_json_lines_are_checked(make_case: MakeCase, rows: Rows, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("question,answer\n1+1,2\n")
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    files = {"data.train_files": str(tmp_path / "x.csv"), "data.val_files": str(tmp_path / "x.jsonl")}
    csv = only(data.files(make_case(files)))
    assert (csv.status, "write_parquet" in csv.remedy) == (Status.PROBLEM, True)


def test_rows_that_lack_their_user(with_rows: WithRows, rows: Rows) -> None:
    first, *others = [{**row, "agent_name": "user_sim_agent"} for row in rows]
    talks = [info(row, user={"replies": ["Yes."]}) for row in others]
    assert refused(data.users(with_rows([first, *talks]))).startswith("extra_info.user: the row has no user")
    assert only(data.users(with_rows(talks))).status is Status.OK


def test_agents_of_the_users_script_are_known(with_rows: WithRows, rows: Rows, tmp_path: Path) -> None:
    (tmp_path / "loops.yaml").write_text("- name: mine_0\n  _target_: a.b\n")
    script = tmp_path / "train.py"
    script.write_text("import agent_rl\n@agent_rl.register_agent_loop('mine_1')\nclass Loop: ...\n")
    keys = {f"{ROLLOUT}.agent.agent_loop_config_path": str(tmp_path / "loops.yaml")}
    case = with_rows([{**row, "agent_name": f"mine_{i % 2}"} for i, row in enumerate(rows)], keys)
    assert "row 1: 'mine_1'" in refused(data.rows_of_files(case))
    object.__setattr__(case, "script", script)
    assert only(data.rows_of_files(case)).status is Status.OK


def test_tools_that_the_default_loop_never_calls(with_rows: WithRows, rows: Rows) -> None:
    findings = list(data.rows_of_files(with_rows([{**row, "agent_name": "single_turn_agent"} for row in rows])))
    assert findings[-1].status is Status.WARNING


def longest(case: Case) -> int:
    """The length of the longest prompt, as its finding says if no prompt fits."""
    return int(only(lengths(case)).text.partition("up to ")[2].split(" ")[0])


def test_each_agents_own_instructions_are_counted(with_rows: WithRows, rows: Rows) -> None:
    def counted(agent: str, **keys: object) -> int:
        case = with_rows([{**row, "agent_name": agent} for row in rows], {PROMPT_TOKENS: 1, **keys})
        return longest(case)

    plain = counted("single_turn_agent")
    assert counted("plan_act_agent") > counted("react_agent") > plain + 200
    assert counted("plan_act_agent", **{"agent_rl.plan_act.instructions": ""}) == plain


def test_an_agent_without_the_tool_that_it_needs(with_rows: WithRows, rows: Rows, tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text("tools: [{name: calculator}, {name: python}]")
    case = with_rows([{**row, "agent_name": "search_agent"} for row in rows], {TOOLS: str(tmp_path / "tools.yaml")})
    assert refused(lengths(case)).startswith("agent_rl.search.tool: there is no tool 'search'")


def test_prompts_that_are_too_long(make_case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    longest_prompt = longest(make_case({PROMPT_TOKENS: 1}))
    some = only(lengths(make_case({PROMPT_TOKENS: longest_prompt - 1})))
    assert some.status is Status.WARNING
    assert some.remedy.startswith(f"Set {PROMPT_TOKENS}={longest_prompt},")
    assert only(lengths(make_case({PROMPT_TOKENS: longest_prompt}))).status is Status.OK
    assert only(lengths(make_case({PROMPT_TOKENS: 100}))).status is Status.PROBLEM
    monkeypatch.setattr(data, "SAMPLE", 1)  # as with thousands of rows, of which only the longest are rendered
    some = only(lengths(make_case({PROMPT_TOKENS: longest_prompt - 1})))
    assert (some.status, some.text.partition(" are ")[0]) == (Status.WARNING, "1 of the 1 longest")


def test_without_what_it_needs(make_case: MakeCase, tmp_path: Path) -> None:
    for keys in ({"actor_rollout_ref.model.path": "some/model"}, {TOOLS: str(tmp_path / "none.yaml")}):
        assert only(lengths(make_case(keys))).status is Status.SKIPPED
    nowhere = {"data.train_files": "x.parquet", "data.val_files": "x.parquet"}
    assert only(lengths(make_case(nowhere))).status is Status.SKIPPED
