"""`submit_answer`: the policy submits its final answer, and the episode ends.

    tools:
      - name: submit_answer
        parameters: # optional: a structured answer
          type: object
          properties: {city: {type: string}, temperature: {type: number}}
          required: [city, temperature]

The answer is the text of the `answer` argument or, with another schema, the arguments as JSON with sorted keys.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from agent_rl.tools.base import Tool, ToolConfig, ToolOutput


class SubmitAnswer(Tool):
    """A stateless tool that ends the episode."""

    name = "submit_answer"
    Config = ToolConfig
    answers = True
    description = "Submit your final answer. Call this once, when you are sure: it ends the task."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "The final answer"}},
        "required": ["answer"],
    }

    async def call(self, arguments: dict[str, Any]) -> ToolOutput:
        """End the episode with the arguments as its answer."""
        single = arguments.get("answer") if len(arguments) == 1 else None
        answer = single if isinstance(single, str) else json.dumps(arguments, ensure_ascii=False, sort_keys=True)
        return ToolOutput("The answer was submitted.", answer=answer)
