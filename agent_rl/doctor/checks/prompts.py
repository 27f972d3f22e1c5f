"""Check of the prompts' lengths in the model's tokens, with the instructions and tools that the agent adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.registry import agent_names, make_loop
from agent_rl.doctor.case import Case
from agent_rl.doctor.check import Needs, check
from agent_rl.doctor.checks.chat_template import load_template
from agent_rl.doctor.checks.tools import tool_specs
from agent_rl.doctor.finding import Finding, ok, problem, skipped, warning
from agent_rl.tools import ToolSpec

SAMPLE = 200
"""Number of rows to tokenize: those with the most characters."""
KEY = "data.max_prompt_length"


@check("data", "prompt lengths", Needs.VERL)
def lengths(case: Case) -> Finding:
    """The longest prompts fit into `data.max_prompt_length`: a trajectory with a longer prompt is unscored."""
    rows, specs = [row for row in case.rows if isinstance(row.get("prompt"), list)], tool_specs(case)
    if case.model.folder is None or not rows:
        return skipped("they need rows, and the model's tokenizer on this machine")
    if specs is None:
        return skipped("they need the tool file, which cannot be read")
    tokenizer, most = load_template(case).tokenizer, case.number(KEY, 0)
    sample = sorted(rows, key=lambda row: -len(str(row["prompt"])))[:SAMPLE]
    counts = [len(tokenizer.encode(_text(case, tokenizer, row, specs), add_special_tokens=False)) for row in sample]
    over, longest = sum(count > most for count in counts), max(counts)
    if not over:
        return ok(f"at most {longest} of {most} tokens, instructions and tools included")
    every = "all" if over == len(counts) else f"{over} of the {len(counts)} longest"
    return (problem if over == len(counts) else warning)(
        f"{every} are longer than {KEY}={most}, up to {longest} tokens, and would not be trained on",
        f"Set {KEY}={longest}, or shorten the rows or the agent's instructions",
    )


def _text(case: Case, tokenizer: Any, row: Mapping[str, Any], specs: Sequence[ToolSpec]) -> str:
    """The prompt as the row's loop would render it."""
    chosen = (row.get("extra_info") or {}).get("tool_selection")
    specs = [spec for spec in specs if not chosen or spec.name in chosen]
    agent = row.get("agent_name") or case.default_agent
    messages, tools = list(row["prompt"]), None
    if agent in agent_names():
        syntax = case.get("actor_rollout_ref.rollout.multi_turn.format", "hermes")
        setup = EpisodeSetup(case.settings, EpisodeLimits(format=syntax), specs)
        format = make_loop(agent, setup).format()
        messages, tools = format.prompt(messages, specs), format.template_tools(specs) or None
    elif agent != "single_turn_agent":
        tools = [spec.schema() for spec in specs] or None
    options = case.get("data.apply_chat_template_kwargs", {})
    return str(
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, tools=tools, **options)
    )
