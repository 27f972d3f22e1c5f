"""Renders a row's prompt as the policy sees it, with the agent's instructions and the row's tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.registry import agent_names, make_loop
from agent_rl.tools.declared import declared_functions

WITHOUT_TOOLS = "single_turn_agent"
"""The name of verl's loop that uses no tools; verl's other loop passes all tools to the chat template."""


def render_prompt(
    row: Mapping[str, Any], agent: str, setup: EpisodeSetup, tokenizer: Any, options: Mapping[str, Any] | None = None
) -> str:
    """Render the prompt of a row with a chat template.

    Args:
        row: the row, with `prompt` and its selection of tools.
        agent: name of the row's loop; the prompt for a loop that agent_rl does not define is rendered as in verl.
        setup: the run's settings, limits and tools.
        tokenizer: the model's tokenizer, with its template; if None, the text lists every message under its role,
            followed by the tools.
        options: additional arguments for the template.
    """
    info = row.get("extra_info") or {}
    chosen = info.get("tool_selection")
    specs = [spec for spec in setup.tools if not chosen or spec.name in chosen]
    messages, tools = list(row["prompt"]), None
    if agent in agent_names():
        specs += declared_functions(info.get("functions"))
        format = make_loop(agent, EpisodeSetup(setup.settings, setup.limits, specs)).format()
        messages, tools = format.prompt(messages, specs), format.template_tools(specs) or None
    elif agent != WITHOUT_TOOLS:
        tools = [spec.schema() for spec in specs] or None
    if tokenizer is None:
        parts = [f"[{each['role']}]\n{each['content']}" for each in messages]
        return "\n".join([*parts, *(["[tools]", *map(json.dumps, tools)] if tools else [])])
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, tools=tools, **(options or {})
    )
    return str(text)
