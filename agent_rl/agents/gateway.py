"""`gateway_agent`: the user's own program talks to the policy through the APIs of OpenAI or Anthropic.

The program runs once per episode and needs no changes. The program reads the policy's address from `OPENAI_BASE_URL`,
the API key from `OPENAI_API_KEY` (or both from Anthropic's variables), and the row from the JSON file that
`AGENT_RL_ROW_FILE` names. Every answer to the program consists of exactly the tokens that training uses.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.episode import recording
from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.loop import EpisodeLoop
from agent_rl.agents.episode.policy import Policy
from agent_rl.agents.sessions.program import ProgramEnd, address_for, run_program
from agent_rl.agents.sessions.server import gateway
from agent_rl.agents.sessions.session import Session
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.agents.users.environment import EnvironmentUser
from agent_rl.agents.users.user import opened
from agent_rl.environments.kind import ROW
from agent_rl.trajectory import StopReason, Trajectory

CRASH_REWARD = 0.0
"""Verdict on an episode whose program failed before it reported a reward. After a failure, every part of an
environment's reward gets this value too, so that a crash is never rewarded."""

logger = logging.getLogger(__name__)


async def run_session(
    loop: EpisodeLoop, row: Mapping[str, Any], policy: Policy, format: Format, trajectory: Trajectory
) -> None:
    """Run the user's program for a row, and answer the program's requests.

    A row's environment judges the trajectory, and may add to the prompt, but offers the program no tools.

    Raises:
        FatalError: no program is configured, or the policy or the environment raised this error.
    """
    assert isinstance(format, ToolCallFormat)
    world = None if loop.environment is None else EnvironmentUser(loop.environment, None)
    settings, budget = loop.settings.gateway, loop.budget()
    session = Session(policy, format, trajectory, max_turns=budget.max_turns, models=settings.models)
    host = address_for(settings.url)
    server = gateway(host)
    async with recording(trajectory, policy, world):
        row = {**row, "raw_prompt": await opened(row["raw_prompt"], world)}
        server.sessions[session.id] = session
        try:
            shown = _shown_row(row, with_truth=settings.ground_truth)
            end = await run_program(settings, shown, f"http://{host}:{server.port}", session.id)
        finally:
            await session.close()
            del server.sessions[session.id]
        _conclude(session, end)
        if world is not None and trajectory.error is None:
            verdict = await world.score(trajectory)
            if "program" in trajectory.info:
                trajectory.verdict, trajectory.rewards = CRASH_REWARD, dict.fromkeys(trajectory.rewards, CRASH_REWARD)
            elif verdict is not None:
                trajectory.verdict = verdict


def _shown_row(row: Mapping[str, Any], *, with_truth: bool) -> dict[str, Any]:
    """Return the part of the row that the program sees."""
    info = dict(row.get("extra_info") or {})
    shown: dict[str, Any] = {"prompt": list(row["raw_prompt"]), "extra_info": info}
    if with_truth:
        shown["ground_truth"] = (row.get("reward_model") or {}).get("ground_truth")
    else:
        info.pop(ROW, None)  # the environment's values may contain the answer
    return shown


def _conclude(session: Session, end: ProgramEnd) -> None:
    """Set the trajectory's stop reason, error and verdict; raise any error from the engine or the gateway."""
    trajectory = session.trajectory
    if session.error is not None:
        raise session.error
    if end.problem is not None:
        trajectory.info["program"] = end.problem
        if not session.counts["requests"]:  # before the first request, a failure is not the policy's fault
            trajectory.stop_reason, trajectory.error = StopReason.ERROR, end.problem
            trajectory.info["bug"] = end.bug or "the program failed before its first request"
            return
        if end.bug and trajectory.stop_reason is StopReason.ERROR:  # a failure after a limit is reached is not a bug
            trajectory.info["bug"] = end.bug
        trajectory.stop_reason, trajectory.answer = StopReason.STOPPED, None
        if trajectory.verdict is None:
            trajectory.verdict = CRASH_REWARD
        logger.warning("%s: %s", trajectory.id, end.problem)
    elif trajectory.stop_reason is StopReason.ERROR:  # no limit was reached
        trajectory.stop_reason = StopReason.ANSWERED if trajectory.answer is not None else StopReason.STOPPED


AGENT = Agent("gateway_agent", lambda settings, limits: ToolCallFormat(limits.format), run=run_session)
