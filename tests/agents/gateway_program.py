"""A program for `gateway_agent`: an agent on OpenAI's SDK with a calculator."""

from __future__ import annotations

from typing import Any

from openai import OpenAI

CALCULATOR = {
    "name": "calculator",
    "description": "Compute an expression.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
}


def run(row: dict[str, Any], base_url: str, api_key: str) -> None:
    """Answer the row; each call gets the result 42."""
    messages = list(row["prompt"])
    tools: Any = [{"type": "function", "function": CALCULATOR}]
    with OpenAI(base_url=base_url, api_key=api_key) as client:
        while True:
            message = client.chat.completions.create(model="policy", messages=messages, tools=tools).choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return
            messages += [{"role": "tool", "tool_call_id": call.id, "content": "42"} for call in message.tool_calls]
