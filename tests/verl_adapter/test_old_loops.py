"""Loops that older guides show: their imports, and what they read."""

import pytest

from tests.forks import python

IMPORT = (
    "try: from verl.experimental.{module} import register_agent_loop\n"
    "except ImportError as error: print(error)\n"
    "else: print('imported')"
)


@pytest.mark.parametrize("module", ["agent_loop", "agent_loop.agent_loop"])
def test_a_name_that_is_gone_says_what_to_import(module: str) -> None:
    message = python(IMPORT.format(module=module))
    assert message == (
        f"verl 0.9 has no register_agent_loop in verl.experimental.{module}. "
        "Write: from agent_rl import register_agent_loop"
    )


def test_verl_alone_has_no_such_name() -> None:
    """The message is no longer needed when this fails."""
    assert "cannot import name" in python(IMPORT.format(module="agent_loop"), plugins="none")


def test_other_names_are_absent_as_ever() -> None:
    code = "import verl.experimental.agent_loop as m; print(hasattr(m, 'no_such_name'), hasattr(m, 'AgentLoopBase'))"
    assert python(code) == "False True"


LOOP = """
import asyncio
from verl.experimental.agent_loop.agent_loop import AgentLoopBase

class Mine(AgentLoopBase):
    async def run(self, {parameters}):
        return {read}

loop = Mine.__new__(Mine)
row = {{"raw_prompt": [{{"role": "user", "content": "6*7?"}}], "uid": "u"}}
print(asyncio.run(loop.run({{"temperature": 1}}, **row)))
"""


@pytest.mark.parametrize(
    ("parameters", "read"),
    [
        ("sampling_params, **kwargs", "kwargs['messages'][0]['content']"),
        ("sampling_params, **kwargs", "kwargs.get('messages')[0]['content']"),
        ("messages, sampling_params, **kwargs", "messages[0]['content']"),
        ("sampling_params, **kwargs", "kwargs['raw_prompt'][0]['content']"),
    ],
)
def test_a_loop_that_reads_messages_gets_them(parameters: str, read: str) -> None:
    assert python(LOOP.format(parameters=parameters, read=read)) == "6*7?"


def test_a_loop_that_does_not_read_messages_gets_the_columns_alone() -> None:
    assert python(LOOP.format(parameters="sampling_params, **row", read="sorted(row)")) == "['raw_prompt', 'uid']"
