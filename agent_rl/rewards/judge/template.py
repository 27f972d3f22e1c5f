"""Prompts of judges, as files with placeholders.

A file is one message, or two: a line `[system]` begins the first, `[user]` the second. `{name}` is filled in, and
`{{name}}` is the text `{name}`. What keeps the judged text from binding the judge, and the form of the verdict, are
added to every template, so a file of one's own need not, and cannot, say them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_rl.errors import ConfigError, did_you_mean

__all__ = ["Template", "load_template"]

FOLDER = Path(__file__).parent / "templates"
_PLACEHOLDER = re.compile(r"\{(\{\w+\})\}|\{(\w+)\}")
_HEADING = re.compile(r"^\[(system|user)\]\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Template:
    """A prompt with placeholders."""

    system: str
    user: str
    names: frozenset[str]
    """The placeholders in it."""

    def fill(self, values: Mapping[str, str]) -> tuple[str, str]:
        """System and user text; braces in the values mean nothing."""

        def fill(text: str) -> str:
            return _PLACEHOLDER.sub(lambda found: found[1] or values[found[2]], text)

        return fill(self.system), fill(self.user)


def load_template(
    path: str | None, default: str, key: str, known: Collection[str], needed: Collection[Collection[str]]
) -> Template:
    """Read a template and check its placeholders.

    Args:
        path: the user's file; None: ours.
        default: the name of ours, without its ending.
        key: the configuration key of the path, for errors.
        known: placeholders that can be filled in.
        needed: one of each must be in it.

    Raises:
        ConfigError: the file cannot be read, or its placeholders are not those that can be filled in.
    """
    file = FOLDER / f"{default}.md" if path is None else Path(path).expanduser()
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"the template {file} cannot be read ({error})"
        raise ConfigError(key, problem, "Name a text file, or leave the key out for the built-in template") from error
    names = frozenset(found[2] for found in _PLACEHOLDER.finditer(text) if found[2])
    for unknown in sorted(names - set(known)):
        remedy = f"{did_you_mean(unknown, known)} Braces around a word that is text are doubled"
        raise ConfigError(key, f"{file} has the unknown placeholder {{{unknown}}}", remedy)
    for choice in needed:
        if names.isdisjoint(choice):
            listing = " or ".join(f"{{{name}}}" for name in choice)
            raise ConfigError(key, f"{file} has no {listing}", "Put it where the judge shall see it")
    before, *headed = _HEADING.split(text)
    parts = dict(zip(headed[::2], headed[1::2], strict=True))
    user = "\n\n".join(part.strip() for part in (before, parts.get("user", "")) if part.strip())
    return Template(parts.get("system", "").strip(), user, names)
