"""Scripts act with the agent, the tools and the reward of an evaluation."""

import asyncio

import pytest

from agent_rl.agents.policies.tokens import ChatTokenizer
from agent_rl.data import arithmetic, write_parquet
from agent_rl.evaluation.runner import Evaluation, run_scripts
from agent_rl.evaluation.settings import read_settings

pytestmark = pytest.mark.trainer


def test_a_script_reads_what_the_tool_says_and_is_scored(tokenizer, builder, tmp_path):
    problems = arithmetic.generate(7, 3)
    write_parquet([arithmetic.to_row(each, "test", n) for n, each in enumerate(problems)], tmp_path / "rows.parquet")
    given = {"model": "-", "data": str(tmp_path / "rows.parquet"), "tools": "tool_configs/calculator.yaml"}
    evaluation = Evaluation.load(read_settings(given, []))

    def script(problem, right):
        found = yield f'Thought: I compute.\nAction: calculator\nAction Input: {{"expression": "{problem.expression}"}}'
        yield f"Thought: So.\nFinal Answer: {found.removeprefix('Observation: ') if right else 0}"

    scripts = [script(problem, number != 1) for number, problem in enumerate(problems)]
    found = asyncio.run(run_scripts(evaluation, ChatTokenizer(tokenizer, builder), scripts))
    assert [each.score.components["correctness"] for each in found] == [1, 0, 1]
    assert [each.answer for each in found] == [problems[0].answer, "0", problems[2].answer]
    assert all(len(each.info["tokens"]["sequences"]) == 1 for each in found)
