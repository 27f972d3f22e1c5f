r"""The policy acts by writing code: a fenced Python block is run, and its output is the observation (as in ReTool).

    I count them.                        There are 25, so the answer is \boxed{25}.
    ```python
    len([n for n in range(2, 98) if all(n % d for d in range(2, n))])
    ```

The environment answers with a ```` ```output ```` block in a separate message. Several Python blocks in one turn run as
one program; blocks in other languages are plain text. A turn without code is the answer: its last `\boxed{...}` or its
whole text, depending on the configuration. If the policy makes up an output block, the turn is cut before the block.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Literal

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.format import Step, TextToolFormat
from agent_rl.data.boxes import last_boxed
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec

Answer = Literal["boxed", "text"]

DEFAULT_INSTRUCTIONS = """\
Solve the task. You can run Python: write one block that begins with ```python and ends with ```, then stop. You receive
what it printed, and the value of its last expression, in a block that begins with ```output. Variables stay defined, so
you can work in several steps.
{answer}"""

_ANSWER: dict[Answer, str] = {
    "boxed": "When you know the answer, write it as \\boxed{answer}, without a Python block.",
    "text": "When you know the answer, write it without a Python block.",
}

NO_ANSWER = "I found neither a block that begins with ```python nor an answer as \\boxed{answer}."

_BLOCK = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_PYTHON = ("python", "py", "python3")


class CodeActFormat(TextToolFormat):
    """The format of `code_act_agent`'s turns.

    Args:
        instructions: system text with the placeholder `{answer}`; None means the default text, and "" means no text.
        answer: with `boxed`, a turn without code must contain a boxed answer; with `text`, its text is the answer.
        observation_role: role of the message that shows the output.
        tool: the tool that executes code; None means the only tool, or `python` if there are several.
    """

    stop = ("```output",)
    around = ("```output\n", "\n```")
    default_instructions = DEFAULT_INSTRUCTIONS
    usual_tool, tool_key = "python", "agent_rl.code_act.tool"

    def __init__(
        self,
        instructions: str | None = None,
        answer: Answer = "boxed",
        observation_role: Literal["user", "tool"] = "user",
        tool: str | None = None,
    ) -> None:
        super().__init__(instructions, observation_role, tool)
        self._answer = answer

    def instructions(self, tools: Sequence[ToolSpec]) -> str:
        """Return the system text; raise ConfigError if no tool accepts code."""
        return super().instructions(tools).replace("{answer}", _ANSWER[self._answer])

    def parse(self, text: str, tools: Sequence[ToolSpec]) -> Step:
        """Extract the program from a turn, or the answer if the turn has no program."""
        text = text.replace("\r\n", "\n")
        blocks = [textwrap.dedent(code) for language, code in _BLOCK.findall(text) if language.lower() in _PYTHON]
        if program := "\n".join(block for block in blocks if block.strip()):
            return Step(calls=[self.call(program, tools)])
        answer = last_boxed(text) if self._answer == "boxed" else text.strip()
        if not answer:
            raise MalformedActionError(NO_ANSWER if self._answer == "boxed" else "The turn is empty.")
        return Step(answer=answer)


AGENT = Agent("code_act_agent", lambda settings, limits: CodeActFormat(**dict(settings.code_act)))
