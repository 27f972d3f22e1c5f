"""Programs for `gateway_agent`: an agent on OpenAI's SDK with a calculator, and a client that replays a row."""

from typing import Any

import httpx
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


async def replay(row: dict[str, Any], base_url: str, api_key: str) -> None:
    """Send the observations of the row after the policy's turns, as any client of chat completions would."""
    messages, headers = list(row["prompt"]), {"Authorization": f"Bearer {api_key}"}
    async with httpx.AsyncClient(headers=headers, timeout=None, verify=False) as client:
        for observation in [*row["extra_info"]["observations"], None]:
            body = {"model": "policy", "messages": messages, "tools": row["extra_info"]["tools"]}
            answer = await client.post(f"{base_url}/chat/completions", json=body)
            message = answer.raise_for_status().json()["choices"][0]["message"]
            messages.append(message)
            if isinstance(observation, str):
                messages.append({"role": "user", "content": observation})
            for call, text in zip(message.get("tool_calls") or (), observation or (), strict=False):
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
