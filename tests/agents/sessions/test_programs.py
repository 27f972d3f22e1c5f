"""Programs with the SDKs and frameworks that agents are written with, unchanged, against the gateway.

They run with the interpreter that AGENT_RL_PROGRAMS_PYTHON names, which has `programs/requirements.txt`: their packages
need other versions than ours.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_rl.agents.sessions.program import ProgramEnd, run_program
from agent_rl.settings.gateway import GatewaySettings
from tests.docs.pages import block

PYTHON = os.environ.get("AGENT_RL_PROGRAMS_PYTHON")
PAGE = "docs/guides/any_agent.md"
PROGRAMS = Path(__file__).parent / "programs"

pytestmark = pytest.mark.trainer


def call(name: str, arguments: str) -> str:
    return f'I use it.\n<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


ADD = call("add", '{"b": 2, "a": 1}')
ANSWER = "It is 3."
FINAL = call("final_answer", '{"answer": "It is 3."}')


@pytest.mark.skipif(PYTHON is None, reason="AGENT_RL_PROGRAMS_PYTHON names no interpreter")
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
def test_a_program_has_one_sequence(serve: Callable[..., Any], program: str, turns: list[str], thought: str) -> None:
    output = []

    async def client(url: str, key: str) -> None:
        environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            **{"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key, "OPENAI_AGENTS_DISABLE_TRACING": "1"},
            **{"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": key},
        }
        process = await asyncio.create_subprocess_exec(
            str(PYTHON), str(PROGRAMS / f"{program}.py"), env=environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        written, _ = await process.communicate()
        output.append(written.decode())
        assert process.returncode == 0, output[0]

    session = serve(client, *(thought + turn for turn in turns), prompt_length=32_768, response_length=2048)
    assert output[0].splitlines()[-1] == "It is 3."
    assert session.trajectory.info["gateway"] == {"requests": len(turns), "conversations": 1}
    (sequence,) = session.policy.sequences()
    assert sum(sequence.mask) == sum(turn.tokens for turn in session.trajectory.turns)


def test_the_program_of_the_guide(serve: Callable[..., Any], tmp_path: Path) -> None:
    """With its command and its row, as `gateway_agent` runs it."""
    (tmp_path / "my_agent.py").write_text(block(PAGE, "python", "my_agent.py"))
    settings = GatewaySettings(command=f"{sys.executable} {tmp_path}/my_agent.py")
    row = {"prompt": [{"role": "user", "content": "1 + 2?"}], "extra_info": {}}
    ends = []

    async def client(url: str, key: str) -> None:
        ends.append(await run_program(settings, row, url, key))

    session = serve(client, ADD, ANSWER)
    assert ends == [ProgramEnd()]
    assert session.trajectory.answer == ANSWER
    assert session.trajectory.turns[0].results[0].text == "3"
    assert session.trajectory.info["gateway"] == {"requests": 2, "conversations": 1}
