"""Checks that there are enough rows, that rows follow their contract and name existing agents, and that prompts fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.policies.chat_template import with_syntax
from agent_rl.agents.registry import agent_names, make_loop
from agent_rl.agents.tool_call import FORMAT_KEY
from agent_rl.data.check import check_files
from agent_rl.data.files import NumberedRow, RowsFile, differences
from agent_rl.errors import ConfigError
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.checks.chat_template import load_template
from agent_rl.launch.doctor.checks.tools import tool_specs
from agent_rl.launch.doctor.rows import known_rows
from agent_rl.preflight.check import Finding, Needs, check, problem, skipped, warning
from agent_rl.rewards.user_function import CUSTOM_FUNCTION
from agent_rl.settings.errors import read_yaml

SAMPLE = 200
"""Number of rows whose ground truths are scored; also the number of longest rows whose prompts are tokenized."""
PROMPT_TOKENS = "data.max_prompt_length"


@check("data")
def files(case: Case) -> Iterator[Finding]:
    """Each file contains rows that follow the contract of `agent_rl.data.rows`, and verl can join the files."""
    for key, row_files in (("data.train_files", case.train), ("data.val_files", case.val)):
        existing = [file for file in row_files if Path(file.path).exists()]  # the launcher reports missing files
        for file in existing:
            path = case.shown(file.path)
            if file.error is not None:
                yield problem(f"{path}: {file.error.problem}", file.error.remedy, key)
            elif file.changes:
                text = f"{path}: rows are converted to the expected format: {'; '.join(file.changes)}"
                yield warning(text, "Check the result, or convert the file with agent-rl data convert", key)
        for file in existing[1:]:
            if differing := differences(existing[0], file):
                text = f"{existing[0].path} and {file.path} differ in {', '.join(differing)}: verl cannot join them"
                yield problem(text, "Give these columns the same type in all files", key)
        if not row_files:
            yield skipped("no file on this machine is configured", subject=key)


@check("data", "training steps")
def row_count(case: Case) -> Iterator[Finding]:
    """There are enough rows for one step; verl drops an incomplete batch, even if there is no other batch."""
    rows, batch = train_rows(case), case.number("data.train_batch_size", 1)
    if rows is None:
        yield skipped("the training rows cannot be counted")
        return
    if rows < batch:
        text = f"{rows} rows are fewer than data.train_batch_size={batch}: the run cannot take a single step"
        yield problem(text, f"Set data.train_batch_size to {rows} or less, or add rows")
    if case.val and not sum(file.count for file in case.val):
        yield problem("there are no rows to validate on", "Add rows", "data.val_files")


@check("data", "rows")
def rows_of_files(case: Case) -> Iterator[Finding]:
    """Rows follow the contract, name existing agents and tools, are distinct, and have usable ground truths."""
    scored = case.scored_by_ours and not case.get(f"{CUSTOM_FUNCTION}.path")
    known = known_rows(
        EpisodeSetup(case.settings, tools=tool_specs(case) or ()),
        default_agent=case.default_agent,
        more_agents={*_config_agents(case), *_script_agents(case)},
        scored=scored,
        sample=SAMPLE if scored else 0,
    )
    files = {case.shown(file.path): _numbered(case, file) for file in (*case.train, *case.val) if file.rows}
    report, drawn = check_files(files, known)
    report.grade(drawn, known)
    for kind, count in report.counts.items():
        place, first = report.shown[kind][0]
        make = problem if kind in report.errors else warning
        yield make(f"{kind}, {count} of {sum(report.rows)} rows: {place}: {first.text}", first.remedy)
    agents = {str(row.get("agent_name") or case.default_agent) for row in case.rows}
    if "single_turn_agent" in agents and case.get("actor_rollout_ref.rollout.multi_turn.tool_config_path"):
        text = "the agent is single_turn_agent, which never calls the configured tools"
        yield warning(text, "Set actor_rollout_ref.rollout.agent.default_agent_loop=react_agent")


@check("data", "simulated users")
def users(case: Case) -> None:
    """The simulated users of the rows can be constructed."""
    for row in case.rows:
        if (agent := str(row.get("agent_name") or case.default_agent)) in agent_names():
            make_loop(agent, EpisodeSetup(case.settings)).user(row)


@check("data", "prompt lengths", Needs.VERL)
def lengths(case: Case) -> Finding | None:
    """The longest prompts fit into `data.max_prompt_length`: a trajectory with a longer prompt is unscored."""
    rows = [row for row in case.rows if isinstance(row.get("prompt"), list)]
    specs, most = tool_specs(case), case.number(PROMPT_TOKENS, 0)
    if not case.has_rows_of_ours:
        return skipped("the run's data set builds the prompts (data.custom_cls)")
    if case.model.folder is None or not rows or specs is None:
        return skipped("the check needs rows, a readable tool file, and the model's tokenizer on this machine")
    tokenizer, options = load_template(case).chat.tokenizer, case.get("data.apply_chat_template_kwargs", {})
    limits = with_syntax(EpisodeLimits(format=case.get(FORMAT_KEY, "hermes")), tokenizer, options)
    known = known_rows(EpisodeSetup(case.settings, limits, specs), tokenizer=tokenizer, options=options)
    rows = sorted(rows, key=lambda row: -len(str(row["prompt"])))
    counts = [known.length({"agent_name": case.default_agent, **row}) for row in [*rows[:SAMPLE], rows[-1]]]
    over, longest = sum(count > most for count in counts[:-1]), max(counts)
    if not over:
        return None
    all_are = min(counts) > most  # the last count is that of the shortest row
    every = "all" if all_are else f"{over} of the {len(counts) - 1} longest"
    return (problem if all_are else warning)(
        f"{every} are longer than {PROMPT_TOKENS}={most}, up to {longest} tokens: such trajectories are unscored",
        f"Set {PROMPT_TOKENS}={longest}, or shorten the rows or the agent's instructions",
    )


def train_rows(case: Case) -> int | None:
    """Return the number of training rows, before long prompts are removed, or None if it is unknown."""
    if not case.train or any(file.error is not None for file in case.train):
        return None
    rows, most = sum(file.count for file in case.train), case.number("data.train_max_samples", -1)
    return min(rows, most) if most > 0 else rows


def total_steps(case: Case) -> int:
    """Return the number of steps of the whole run, or 0 if the rows cannot be counted."""
    if steps := case.get("trainer.total_training_steps"):
        return int(steps)
    return (train_rows(case) or 0) // case.number("data.train_batch_size", 1) * case.number("trainer.total_epochs", 1)


def _numbered(case: Case, file: RowsFile) -> Iterator[NumberedRow]:
    for number, row in enumerate(file.rows):
        yield NumberedRow(f"{case.shown(file.path)}, row {number}", number, row, ())


def _config_agents(case: Case) -> set[str]:
    """Return the agent names in the file of `agent_loop_config_path`."""
    key = "actor_rollout_ref.rollout.agent.agent_loop_config_path"
    path = case.get(key)
    try:
        entries: Any = read_yaml(Path(case.path(path))) if path else []
        return {str(entry["name"]) for entry in entries}
    except (KeyError, TypeError) as error:
        raise ConfigError(key, f"{path} cannot be read ({error})", "Write a list of {name, _target_}") from error


def _script_agents(case: Case) -> set[str]:
    """Return the agent names in the text of the user's script, which is not run, because that might start training."""
    with suppress(OSError, ValueError):  # `own_code` reports the error
        text = case.script.read_text(encoding="utf-8") if case.script else ""
        return set(re.findall(r"(?:register_agent_loop|\bAgent)\(\s*['\"]([^'\"]+)", text))
    return set()
