"""Episodes whose turns scripts write, with the agent, tools and reward of an evaluation: one for each row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from agent_rl.concurrency import together
from agent_rl.evaluation.runner import Evaluation, columns
from agent_rl.policies.script import Script, ScriptedTokens
from agent_rl.policies.tokens import ChatTokenizer
from agent_rl.trajectory import Trajectory

__all__ = ["run_scripts"]


async def run_scripts(
    evaluation: Evaluation,
    chat: ChatTokenizer,
    scripts: Sequence[Script],
    on_episode: Callable[[], None] = lambda: None,
) -> list[Trajectory]:
    """The scored trajectories, in the order of the rows; `info["tokens"]` has what a trainer would get.

    Args:
        evaluation: what to run.
        chat: the tokenizer of the model that is to write such turns.
        scripts: one for each row.
        on_episode: called after each.
    """
    free, settings = asyncio.Semaphore(evaluation.settings.concurrency), evaluation.settings

    async def episode(number: int, script: Script) -> Trajectory:
        row = evaluation.rows[number]
        async with free:
            loop = evaluation.loop(evaluation.agent(row), chat.tokenizer)
            format = loop.format()
            policy = ScriptedTokens(script, chat, settings.sampling.max_response_tokens, format)
            trajectory = await loop.run_row(columns(row, number, 0), policy, format)
            trajectory.info["tokens"] = policy.record()
            await evaluation.score(trajectory)
            on_episode()
            return trajectory

    try:
        return await together([episode(*each) for each in enumerate(scripts)])
    finally:
        await evaluation.reward.close()
