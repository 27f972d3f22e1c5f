"""Loads tool files outside verl: entries of verl's own `BaseTool` classes become tools like any other."""

from __future__ import annotations

from agent_rl.tools import ToolSpec, load_tools

__all__ = ["load_specs"]


def load_specs(path: str) -> list[ToolSpec]:
    """The tools of a file; verl is imported only for entries of its own classes.

    Raises:
        ConfigError: naming file, entry and field.
    """
    specs = load_tools(path)
    if any(spec.is_verl for spec in specs):
        from agent_rl.verl_adapter.verl_tools import load, to_specs

        return to_specs(load(path))
    return specs
