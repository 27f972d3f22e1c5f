"""Generates docs/guides/migration.md from the table of `agent_rl.settings.old_keys`, for docs/references.py."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

from agent_rl.settings import old_keys

__all__ = ["migration_page"]

VALUES = {
    r"\{.*": "a mapping",
    r"\[.*": "a list (`[a,b]`)",
    "[0-9]+": "a number",
    "[1-9][0-9]*": "a number above 0",
    "[-+.0-9]+(e[-+]?[0-9]+)?": "a number",
}
"""The values that a pattern of the table matches, in words."""


def migration_page(note: str, table: Any) -> str:
    """Return the text of the page.

    Args:
        note: first line of the page.
        table: makes a Markdown table from columns and rows.
    """
    parts = [
        f"""{note}
# Coming from an older verl

This page lists keys from verl 0.3 to 0.8, from guides for those versions and from other trainers, with their
replacements in verl 0.9.1 and agent_rl. `python -m verl.trainer.main_ppo`, `agent-rl train`, `agent-rl doctor` and
`agent-rl eval` accept old keys in commands and YAML files. A moved key takes effect, and a line reports it:

```text
agent_rl: reward_model.reward_manager=dapo is reward.reward_manager.name=dapo: verl moved all reward keys to `reward`
```

These commands also warn about a current verl key that agent_rl does not read, if its value differs from verl's
default. Any other old key ends the command with exit code 2 and shows what to write instead, with your values. A
command line that has both an old key and its new form is rejected. A key on the command line overrides the key in a
YAML file, even if one of them has the old name and the other the new name.
"""
    ]
    for section, rows in itertools.groupby(old_keys.rows(), lambda row: row.section):
        entries = itertools.groupby(rows, lambda row: (_outcome(row), _becomes(row), row.why))
        lines = [_old_keys(list(same), becomes, why) for (_, becomes, why), same in entries]
        parts += [f"## {section}\n", table(("old", "new", "what happens", "why"), lines)]
    return "\n".join(parts)


def _old_keys(rows: list[old_keys.OldKey], becomes: str, why: str) -> tuple[str, ...]:
    """Return a row of the table for old keys with the same outcome."""
    old, new = (_codes(names) for names in ((row.old for row in rows), (row.renamed(row.old, "*") for row in rows)))
    first = rows[0]
    conditions = [_values("|".join(first.values) or first.when)] if first.when else []
    for word, joint, others in (("with", " and ", first.only_with), ("unless", " or ", first.unless)):
        conditions += [f"{word} {joint.join(f'`{k}={_plain(v)}`' for k, v in others.items())}"] if others else []
    return " ".join([old, *conditions]), new, becomes, why


def _values(pattern: str) -> str:
    """Describe the values that a pattern of the table matches."""
    if match := re.fullmatch(r"\(\?!(\w+)\$\)\.\*", pattern):
        return f"set to a value other than `{match[1]}`"
    if re.fullmatch(r"[\w|]+", pattern):
        return "set to " + " or ".join(f"`{value}`" for value in pattern.split("|"))
    return f"set to {VALUES[pattern]}"


def _plain(value: Any) -> str:
    return "|".join(map(_plain, value)) if isinstance(value, list) else old_keys.written(value)


def _outcome(row: old_keys.OldKey) -> tuple[Any, ...]:
    return row.new, row.when, str(row.only_with), str(row.unless)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names) if name)


def _becomes(row: old_keys.OldKey) -> str:
    if row.kind == "moved":
        if row.new == row.old and row.values:
            return f"the value becomes {_codes(row.values.values())}"
        return "the new key takes effect" if row.new else "the key is removed"
    what = "the key has no effect, and a warning says so" if row.kind == "unread" else "the key is rejected"
    return f"{what}. {row.write}" if row.write else what
