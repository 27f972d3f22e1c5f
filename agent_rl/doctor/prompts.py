"""Check of the prompts' lengths, by the model's own tokenizer and with what the agent adds to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_rl.agents.agents import AGENTS, make_format
from agent_rl.doctor.case import Case
from agent_rl.doctor.finding import Finding, ok, problem, skipped, warning
from agent_rl.doctor.template import load_template
from agent_rl.doctor.tooling import tool_path
from agent_rl.errors import AgentRLError
from agent_rl.settings import AgentRLSettings
from agent_rl.tools import ToolSpec, load_tools

__all__ = ["lengths"]

SAMPLE = 200
"""Rows of which the prompts are counted: those with the most characters."""
KEY = "data.max_prompt_length"


def lengths(case: Case) -> Iterator[Finding]:
    """The longest prompts fit; the loop leaves a trajectory unscored whose prompt does not."""
    rows = [row for table in (*case.train, *case.val) for row in table.rows if isinstance(row.get("prompt"), list)]
    if case.model.folder is None or not rows:
        yield skipped("prompt lengths", "they need rows, and the model's tokenizer on this machine")
        return
    path = tool_path(case)
    try:
        specs = load_tools(path) if path else []
    except AgentRLError:
        yield skipped("prompt lengths", "they need the tool file, which cannot be read")
        return
    tokenizer, most = load_template(case).tokenizer, int(case.get(KEY, 0))
    sample = sorted(rows, key=lambda row: -len(str(row["prompt"])))[:SAMPLE]
    counts = [len(tokenizer.encode(_text(case, tokenizer, row, specs), add_special_tokens=False)) for row in sample]
    over, longest = sum(count > most for count in counts), max(counts)
    if over:
        every = "all" if over == len(counts) else f"{over} of the {len(counts)} longest"
        text = f"{every} are longer than {KEY}={most}, up to {longest} tokens, and would not be trained on"
        remedy = f"Set {KEY}={longest}, or shorten the rows or the agent's instructions"
        yield (problem if over == len(counts) else warning)("prompt lengths", text, remedy)
    else:
        yield ok("prompt lengths", f"at most {longest} of {most} tokens, instructions and tools included")


def _text(case: Case, tokenizer: Any, row: Mapping[str, Any], specs: Sequence[ToolSpec]) -> str:
    """The prompt as the row's loop would render it."""
    chosen = (row.get("extra_info") or {}).get("tool_selection")
    specs = [spec for spec in specs if not chosen or spec.name in chosen]
    agent = row.get("agent_name") or case.get("actor_rollout_ref.rollout.agent.default_agent_loop")
    messages, tools = list(row["prompt"]), None
    if agent in AGENTS:
        syntax = case.get("actor_rollout_ref.rollout.multi_turn.format", "hermes")
        format = make_format(agent, AgentRLSettings.from_config(case.config), syntax)
        messages, tools = format.prompt(messages, specs), format.template_tools(specs) or None
    elif agent != "single_turn_agent":
        tools = [spec.schema() for spec in specs] or None
    options = case.get("data.apply_chat_template_kwargs", {})
    return str(
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, tools=tools, **options)
    )
