"""Checks of the user's own code and rows: tools, hooks, simulated users, components and scorers work on a row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.episode.trial import own_code_problems
from agent_rl.agents.registry import StartsTrainingError, load_script
from agent_rl.agents.users.user import load_user
from agent_rl.errors import AgentRLError, ConfigError, FatalError
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import Finding, check, ok, skipped
from agent_rl.tools import ToolSpec


@check("data", at=("trainer",))
def readable_rows(case: RunCase) -> Iterator[ConfigError]:
    """Files of rows that exist can be read."""
    for key, files in (("data.train_files", case.train), ("data.val_files", case.val)):
        for file in files if case.has_rows_of_ours else ():
            if file.error is not None and Path(file.path).exists():
                yield ConfigError(key, f"{file.error.key}: {file.error.problem}", file.error.remedy)


@check("tools", at=("trainer",))
def readable_tools(case: RunCase) -> None:
    """The tool file can be read."""
    case.tools  # noqa: B018 - raises


@check("your code", "simulated user", at=("trainer", "doctor"))
def simulated_user(case: RunCase) -> None:
    """There is such a simulated user, and it takes its configuration."""
    load_user(case.settings.user_sim.user, case.settings.user_sim.config)


@check("your code", "tried on a row", at=("trainer", "doctor"))
def own_code(case: RunCase) -> list[Finding | FatalError]:
    """Hooks, users and tools are made and started, components and scorers measure an answer.

    The user's script runs up to its main block, for the agents that it registers.
    """
    found: list[Finding | FatalError] = []
    if case.script is not None:
        try:
            load_script(str(case.script))
        except StartsTrainingError as error:
            found.append(skipped(f"the agents of the script are not tried: {error.problem}", error.remedy))
        except FatalError as error:
            found.append(error)
    reward, tools = None, list[ToolSpec]()
    with suppress(AgentRLError):  # the group "tools" reports it
        tools = case.tools
    with suppress(FatalError):  # the group "reward" reports it
        reward = case.reward if case.scored_by_ours else None
    rows = case.rows if case.has_rows_of_ours else []
    found += own_code_problems(EpisodeSetup(case.settings, tools=tools), rows, case.default_agent, reward)
    return found or [ok("nothing raises")]
