"""Checks of the user's own code: tools, hooks, simulated users, components and scorers work on a row of the run."""

from __future__ import annotations

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.episode.trial import own_code_problems
from agent_rl.agents.registry import StartsTrainingError, load_script
from agent_rl.doctor.case import Case
from agent_rl.doctor.check import Finding, check, ok, problem, skipped
from agent_rl.doctor.checks.reward import MANAGER, OURS
from agent_rl.doctor.checks.tools import tool_specs
from agent_rl.errors import ConfigError, FatalError
from agent_rl.rewards import Reward


@check("your code", "tried on a row")
def own_code(case: Case) -> list[Finding]:
    """Hooks, users and tools are made and started, components and scorers measure an answer, as before a training.

    The user's script runs up to its main block, for the agents that it registers.
    """
    findings = []
    if case.script is not None:
        try:
            load_script(str(case.script))
        except StartsTrainingError as error:
            findings.append(skipped(f"the agents of the script are not tried: {error.problem}", error.remedy))
        except FatalError as error:
            findings.append(_finding(error))
    setup = EpisodeSetup(case.settings, tools=tool_specs(case) or ())
    problems = own_code_problems(setup, case.rows, case.default_agent, _reward(case))
    return [*findings, *map(_finding, problems)] or [ok("nothing raises")]


def _reward(case: Case) -> Reward | None:
    """The run's reward; None when it has another one, or one that cannot be made, which the group "reward" reports."""
    if case.get(MANAGER) != OURS:
        return None
    try:
        return case.reward
    except FatalError:
        return None


def _finding(error: FatalError) -> Finding:
    if isinstance(error, ConfigError):
        return problem(f"{error.key}: {error.problem}", error.remedy)
    return problem(str(error), "Correct the code there")
