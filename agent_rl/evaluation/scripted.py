"""Episodes whose turns scripts write, with the agent, tools and reward of an evaluation: one for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from agent_rl.concurrency import together
from agent_rl.errors import UnscoredError
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
    found: dict[int, Trajectory] = {}

    async def work(numbers: Iterator[int]) -> None:
        for number in numbers:
            found[number] = await _episode(evaluation, chat, scripts[number], number)
            on_episode()

    numbers = iter(range(len(evaluation.rows)))
    try:
        await together([work(numbers) for _ in range(min(evaluation.settings.concurrency, len(evaluation.rows)))])
    finally:
        await evaluation.reward.close()
    return [found[number] for number in sorted(found)]


async def _episode(evaluation: Evaluation, chat: ChatTokenizer, script: Script, number: int) -> Trajectory:
    row = evaluation.rows[number]
    loop = evaluation.loop(evaluation.agent(row), chat.tokenizer)
    format = loop.format()
    policy = ScriptedTokens(script, chat, evaluation.settings.sampling.max_response_tokens, format)
    trajectory = await loop.run_row(columns(row, number, 0), policy, format)
    trajectory.info["tokens"] = policy.record()
    try:
        trajectory.score = await evaluation.reward.score(trajectory)
    except UnscoredError as error:
        trajectory.error = trajectory.error or str(error)
    return trajectory
