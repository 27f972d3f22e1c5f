"""`gateway_agent`: the user's own program talks to the policy through the APIs of OpenAI or Anthropic.

The program runs once for each episode, unchanged: it finds the address of the policy in `OPENAI_BASE_URL` and its key
in `OPENAI_API_KEY` (and Anthropic's), and its row in the JSON file `AGENT_RL_ROW_FILE`. Every request is answered with
the exact tokens that training uses.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.loop import EpisodeLoop
from agent_rl.agents.episode.policy import Policy
from agent_rl.agents.sessions.program import ProgramEnd, address_for, run_program
from agent_rl.agents.sessions.server import gateway
from agent_rl.agents.sessions.session import Session
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.errors import ConfigError, EngineError
from agent_rl.trajectory import StopReason, Trajectory

__all__ = ["AGENT"]

CRASH_REWARD = 0.0
"""Verdict on an episode whose program failed without a reward, so that crashing never pays."""

logger = logging.getLogger(__name__)


async def run_session(
    loop: EpisodeLoop, row: Mapping[str, Any], policy: Policy, format: Format, trajectory: Trajectory
) -> None:
    """Run the program of a row, and answer its requests.

    Raises:
        ConfigError: no program is configured, or the row has an environment.
    """
    assert isinstance(format, ToolCallFormat)
    if loop.environment is not None:
        problem = "gateway_agent runs a program, which cannot act in the row's environment"
        raise ConfigError("extra_info.environment", problem, "Choose another agent, or remove the environment")
    settings, budget = loop.settings.gateway, loop.budget()
    session = Session(policy, format, trajectory, max_turns=budget.max_turns, models=settings.models)
    host = address_for(settings.url)
    server = await gateway(host)
    server.sessions[session.id] = session
    try:
        shown = _shown_row(row, with_truth=settings.ground_truth)
        end = await run_program(settings, shown, f"http://{host}:{server.port}", session.id)
    finally:
        await session.close()
        del server.sessions[session.id]
    _conclude(session, end)
    trajectory.prompt_tokens, trajectory.response_tokens = policy.prompt_tokens, policy.response_tokens
    trajectory.longest_tokens = policy.longest_tokens


def _shown_row(row: Mapping[str, Any], *, with_truth: bool) -> dict[str, Any]:
    """Return what the program sees of the row."""
    shown: dict[str, Any] = {"prompt": list(row["raw_prompt"]), "extra_info": dict(row.get("extra_info") or {})}
    if with_truth:
        shown["ground_truth"] = (row.get("reward_model") or {}).get("ground_truth")
    return shown


def _conclude(session: Session, end: ProgramEnd) -> None:
    """Set stop reason, error and verdict of the trajectory."""
    trajectory = session.trajectory
    if isinstance(session.error, EngineError):
        trajectory.stop_reason, trajectory.error = StopReason.ENGINE_ERROR, str(session.error)
    elif session.error is not None:
        trajectory.stop_reason, trajectory.error = StopReason.ERROR, str(session.error)
    elif end.problem is not None:
        trajectory.info["program"] = end.problem
        if not session.counts["requests"]:  # a failure before the first request is the user's, not the policy's
            trajectory.stop_reason, trajectory.error = StopReason.ERROR, end.problem
            trajectory.info["bug"] = end.bug or "the program fails before its first request"
            return
        trajectory.stop_reason = StopReason.STOPPED
        if trajectory.verdict is None:
            trajectory.verdict = CRASH_REWARD
        logger.warning("%s: %s", trajectory.id, end.problem)
    elif trajectory.stop_reason is StopReason.ERROR:  # no limit was reached
        trajectory.stop_reason = StopReason.ANSWERED if trajectory.answer is not None else StopReason.STOPPED


AGENT = Agent("gateway_agent", lambda settings, limits: ToolCallFormat(limits.format), run=run_session)
