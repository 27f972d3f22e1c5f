"""A YAML file of tools, read into `ToolSpec`s. Every mistake in it is a `ConfigError` that says where and what to do.

    tools:
      - name: calculator                        # a built-in tool, or a built-in toolset such as mcp
      - class_name: my_package.tools.Search     # or my_tools.py:Search, beside this file
        config: {top_k: 3}
        timeout_s: 5                            # of one call
        max_concurrency: 8                      # calls at once in a worker process
        retries: 2                              # for a tool that declares itself idempotent ...
        cache: trajectory                       # ... as is this: off, trajectory, or shared by a worker process

`name`, `description` and `parameters` override what the class says. verl's form (`class_name`, `config` with
`type: native`, `tool_schema`) is read as well, and so are verl's own `BaseTool` classes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.errors import did_you_mean
from agent_rl.settings.errors import Place
from agent_rl.settings.yaml_files import read_yaml
from agent_rl.tools.entry import Entry
from agent_rl.tools.spec import ToolSpec

__all__ = ["dump_tools", "load_tools"]


def load_tools(path: str | Path) -> list[ToolSpec]:
    """The tools of one YAML file, in its order.

    Args:
        path: the file; omegaconf interpolations such as `${oc.env:INDEX}` are resolved.

    Raises:
        ConfigError: naming the file, the entry, the field, the value and the remedy.
    """
    place = Place(file=Path(path))
    specs: list[ToolSpec] = []
    owner: dict[str, int] = {}
    for index, content in enumerate(_read_entries(Path(path))):
        entry = Entry(place / "tools" / index, content)
        for spec in entry.specs():
            if spec.name in owner:
                problem = f"{spec.name!r} is already the name of tools[{owner[spec.name]}]"
                raise (entry.place / "name").error(problem, "Rename one of them")
            owner[spec.name] = index
            specs.append(spec)
    return specs


def dump_tools(content: Mapping[str, Any]) -> str:
    """The text of a tool file that `load_tools` reads as `content`: nothing in it is taken for an interpolation."""
    from omegaconf import OmegaConf  # as in `read_yaml`: only who writes or reads a tool file waits for it

    return OmegaConf.to_yaml(OmegaConf.create(_escaped(content)))


def _escaped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _escaped(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_escaped(part) for part in value]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value


def _read_entries(path: Path) -> list[Any]:
    place, content = Place(file=path), read_yaml(path)
    if not isinstance(content, Mapping) or "tools" not in content:
        raise place.error("no `tools` list at the top level", "Write `tools:` and below it one entry for each tool")
    for key in content:
        if key != "tools":
            raise (place / str(key)).error("unknown key", did_you_mean(str(key), ["tools"]))
    entries = content["tools"]
    if not isinstance(entries, list) or not entries:
        problem = f"expected a list of entries, got {entries!r}"
        raise (place / "tools").error(problem, "Write at least `- name: calculator`")
    return entries
