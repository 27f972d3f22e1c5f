"""The `my_agent` agent: writes a sum between <sum> and </sum>, and the answer between <answer> and </answer>."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_rl import Agent, register_agent_loop
from agent_rl.agents.episode.format import Step, TextFormat
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall


class MyAgentFormat(TextFormat):
    """Writes the agent's instructions and reads its turns."""

    stop = ("</sum>", "</answer>")
    keep_stop = True
    around = ("<result>", "</result>")
    default_instructions = (
        "Write a sum as <sum>2 + 3 * 4</sum>, then stop: its result comes between <result> and </result>.\n"
        "Write the answer as <answer>14</answer>."
    )

    def parse(self, text: str, tools: Sequence[ToolSpec]) -> Step:
        """Return a call, or the answer that ends the episode."""
        found = re.search(r"<(sum|answer)>(.+?)</\1>", text, re.DOTALL)
        if found is None:
            raise MalformedActionError("Write <sum>...</sum> or <answer>...</answer>.")  # the policy reads this message
        if found[1] == "answer":
            return Step(answer=found[2].strip())
        return Step(calls=[ToolCall("calculator", {"expression": found[2]})])


register_agent_loop(Agent("my_agent", format=lambda settings, limits: MyAgentFormat()))

if __name__ == "__main__":  # --script runs this file instead of verl's trainer
    from verl.trainer.main_ppo import main

    main()
