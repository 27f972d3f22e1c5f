"""Quick checks on the rows, which run before the launch and before Ray starts, and take less than a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent_rl.agents.users.user import gives_verdict, load_user
from agent_rl.data.files import without_prompt
from agent_rl.errors import ConfigError, FatalError, did_you_mean
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import Finding, check
from agent_rl.preflight.values import STORED
from agent_rl.rewards.component import kinds
from agent_rl.rewards.compose import answers_of
from agent_rl.rewards.user_function import CUSTOM_FUNCTION
from agent_rl.settings.errors import Place, validated

AT = ("launch", "trainer")


@check("data", at=AT)
def readable_rows(case: RunCase) -> Iterator[ConfigError]:
    """Row files that exist can be read, and their rows have prompts."""
    for key, files in (("data.train_files", case.train), ("data.val_files", case.val)):
        for file in files if case.has_rows_of_ours else ():
            if file.error is not None and Path(file.path).exists():
                yield ConfigError(key, f"{file.error.key}: {file.error.problem}", file.error.remedy)
            elif file.rows and case.get("data.prompt_key", "prompt") not in file.rows[0]:
                columns = file.schema.names if file.schema is not None else list(file.rows[0])
                yield ConfigError(key, *without_prompt(case.shown(file.path), columns))


@check("data", at=AT)
def stored_validation(case: RunCase) -> Iterator[ConfigError]:
    """TransferQueue has room for all trajectories of a validation batch; sessions that find no room would fail."""
    limits = (case.get(f"data.{name}") for name in ("val_batch_size", "val_max_samples"))
    prompts = min(
        [sum(file.count for file in case.val), *(each for each in limits if isinstance(each, int) and each > 0)]
    )
    stored, most = prompts * case.number("actor_rollout_ref.rollout.val_kwargs.n", 1), case.get(STORED)
    if isinstance(most, int) and stored > most:
        problem = f"a validation batch has {stored:,} trajectories, but TransferQueue stores at most {most:,}"
        yield ConfigError("data.val_batch_size", problem, f"Set it to a smaller number, or {STORED} to null")


@check("data", "programs", at=AT)
def programs(case: RunCase) -> None:
    """Each row for `gateway_agent` has a program to run."""
    gateway = case.settings.gateway
    if gateway.command or gateway.function or gateway.url or not case.has_rows_of_ours:
        return
    rows = ((file.path, number, row) for file in (*case.train, *case.val) for number, row in enumerate(file.rows))
    for path, number, row in rows:
        agent, info = row.get("agent_name") or case.default_agent, row.get("extra_info") or {}
        if agent == "gateway_agent" and not info.get("program"):
            problem = f"{case.shown(path)}, row {number}, is for gateway_agent, but has no program"
            remedy = "Set agent_rl.gateway.command, function or url, or extra_info.program in each row"
            raise ConfigError("agent_rl.gateway", problem, remedy)


@check("reward", "scorers", at=("launch",))
def built_in_scorers(case: RunCase) -> Iterator[Finding | FatalError]:
    """Run `scorers` early, unless the user's code could still register a scorer."""
    kinds = [settings.kind for settings in case.settings.reward.components.values()]
    own = case.script or case.environ.get("VERL_USE_EXTERNAL_MODULES") or any("." in kind for kind in kinds)
    if not own:
        yield from scorers.found(case)


@check("reward", "components", at=("launch",))
def built_in_components(case: RunCase) -> None:
    """Components of a built-in kind have valid settings; components of the user's own kinds are checked later."""
    for name, section in case.settings.reward.components.items() if case.scored_by_ours else ():
        place, known = Place(f"agent_rl.reward.components.{name}"), kinds()
        if section.kind in known:
            validated(known[section.kind].Config, dict(section.config), place / "config")
        elif "." not in section.kind:
            raise ConfigError(f"{place}.kind", f"there is no {section.kind!r}", did_you_mean(section.kind, known))


@check("reward", "scorers", at=("trainer",))
def scorers(case: RunCase) -> None:
    """The scorer that the settings name exists; without such a setting, each data source of the rows has a scorer."""
    if not case.scored_by_ours or case.get(f"{CUSTOM_FUNCTION}.path"):
        return
    rows = case.rows if case.has_rows_of_ours else []
    user = load_user(case.settings.user_sim.user, case.settings.user_sim.config)
    for source in sorted({str(row.get("data_source") or "") for row in rows if not gives_verdict(user, row)}):
        if (answers := answers_of(case.settings.reward, source)) is not None:
            answers.require(source)
