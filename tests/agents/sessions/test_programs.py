"""Programs with the SDKs and frameworks that agents are written with, unchanged, against the gateway.

They run with the Python of `make programs`: their packages need other versions than ours.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_rl.agents.sessions.program import ProgramEnd, function_worker, run_program
from agent_rl.settings.sections import GatewaySettings
from tests.docs.pages import block
from tests.support.programs import PROGRAMS, PYTHON, needs_programs

PAGE = "docs/guides/any_agent.md"

pytestmark = pytest.mark.trainer


def call(name: str, arguments: str) -> str:
    return f'I use it.\n<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


ADD = call("add", '{"b": 2, "a": 1}')
ROW = {"prompt": [{"role": "user", "content": "1 + 2?"}], "extra_info": {}}
ANSWER = "It is 3."
FINAL = call("final_answer", '{"answer": "It is 3."}')


@needs_programs
@pytest.mark.recipes
@pytest.mark.parametrize(
    ("program", "turns"),
    [
        ("anthropic_agent", [ADD, ADD, ANSWER]),
        ("openai_agents", [ADD, ADD, ANSWER]),
        ("pydantic_agent", [ADD, ADD, ANSWER]),
        ("langgraph_agent", [ADD, ADD, ANSWER]),
        ("smolagents_agent", [ADD, ADD, FINAL]),
        ("smolagents_code", ["I add.\n<code>\nprint(1 + 2)\n</code>", '<code>\nfinal_answer("It is 3.")\n</code>']),
    ],
)
@pytest.mark.parametrize("thought", ["", "<think>\nOne and two.\n</think>\n\n"])
async def test_a_program_has_one_sequence(
    serve: Callable[..., Any], program: str, turns: list[str], thought: str
) -> None:
    async with serve(*(thought + turn for turn in turns), prompt_length=32_768, response_length=2048) as (url, session):
        environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            **{"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": session.id, "OPENAI_AGENTS_DISABLE_TRACING": "1"},
            **{"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": session.id},
        }
        process = await asyncio.create_subprocess_exec(
            str(PYTHON), str(PROGRAMS / f"{program}.py"), env=environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        written, _ = await process.communicate()
        output = written.decode()
        assert process.returncode == 0, output
    assert output.splitlines()[-1] == "It is 3."
    assert session.trajectory.info["gateway"] == {"requests": len(turns), "conversations": 1}
    (sequence,) = session.policy.sequences()
    assert sum(sequence.mask) == sum(turn.tokens for turn in session.trajectory.turns)


@needs_programs
@pytest.mark.recipes
async def test_the_graph_of_the_guide(serve: Callable[..., Any], tmp_path: Path) -> None:
    """In forks of LangGraph's Python, as `gateway_agent` calls it."""
    (tmp_path / "my_graph.py").write_text(block(PAGE, "python", "my_graph.py"))
    settings = GatewaySettings(function=f"{tmp_path}/my_graph.py:run", python=str(PYTHON))
    async with serve(call("multiply", '{"a": 1, "b": 2}'), ANSWER, prompt_length=2048) as (url, session):
        end = await run_program(settings, ROW, url, session.id)
    function_worker(settings).close()
    assert end == ProgramEnd()
    assert session.trajectory.answer == ANSWER
    assert session.trajectory.turns[0].results[0].text == "2.0"
    assert session.trajectory.info["gateway"] == {"requests": 2, "conversations": 1}


async def test_the_program_of_the_guide(serve: Callable[..., Any], tmp_path: Path) -> None:
    """With its command and its row, as `gateway_agent` runs it."""
    (tmp_path / "my_agent.py").write_text(block(PAGE, "python", "my_agent.py"))
    settings = GatewaySettings(command=f"{sys.executable} {tmp_path}/my_agent.py")
    async with serve(ADD, ANSWER) as (url, session):
        end = await run_program(settings, ROW, url, session.id)
    assert end == ProgramEnd()
    assert session.trajectory.answer == ANSWER
    assert session.trajectory.turns[0].results[0].text == "3"
    assert session.trajectory.info["gateway"] == {"requests": 2, "conversations": 1}
