"""A user's own reward function that asks the reward model's server, which verl starts beside the policy's."""

import zlib
from typing import Any

import aiohttp

ANSWER_TOKENS = 5


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, reward_router_address: str, **more: Any
) -> dict[str, float]:
    question = {"role": "user", "content": f"Is {ground_truth} the answer? {solution_str[-100:]}"}
    request = {"model": "judge", "messages": [question], "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"http://{reward_router_address}/v1/chat/completions", json=request) as response:
            response.raise_for_status()
            answer = await response.json()
    verdict = answer["choices"][0]["message"]["content"]
    return {
        "score": zlib.crc32(verdict.encode()) % 101 / 100,
        "judged_tokens": float(answer["usage"]["completion_tokens"]),
    }
