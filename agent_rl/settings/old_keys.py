"""Old spellings of keys: what earlier releases of verl, and the guides written for them, call a setting.

`old_keys.yaml` beside this file is the table: add a row there. A key that has moved takes effect under its new name,
with one line to stderr; a key that means something different now, or nothing, is refused with what to write. It is
applied twice: to the command line before hydra reads it (`change_arguments`), and to the composed configuration
(`change_config`), where keys of YAML files are found and where rows that depend on other keys are decided.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from agent_rl.errors import ConfigError
from agent_rl.settings.errors import Place
from agent_rl.settings.free_sections import is_free

__all__ = ["RUN", "OldKey", "argument_keys", "change_arguments", "change_config", "is_old", "rows", "tell", "written"]

RUN = "AGENT_RL_RUN"
"""Environment variable that all processes of a launcher's run inherit: their command lines have been changed."""

TABLE = Path(__file__).with_suffix(".yaml")
_ARGUMENT = re.compile(r"\+{0,2}(?P<key>(--|\$)?[A-Za-z_][^=\s]*)=.*", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+?-]+")
_KEPT = object()


@dataclass(frozen=True)
class OldKey:
    """A row of the table.

    `*` at the end of `old` stands for all keys below, and in `new` and `write` for what it found. `=` at the end of
    `new` stands for the last part of the old key.
    """

    old: str
    kind: Literal["moved", "different", "gone", "unread"]
    """`unread`: a key of today that a run does not read; a line says so, and nothing changes."""
    why: str
    """One line."""
    new: str | None = None
    """The key that has the meaning now; `moved` without one: it is not needed any more and is left out."""
    write: str = ""
    """What to write instead of a refused key, with `{value}`; empty: `new={value}`."""
    when: str | None = None
    """Pattern of the whole value, ignoring case, for which alone the row counts."""
    default: str | None = None
    """The value, as it is written on the command line, for which the row does not count: verl's default."""
    unless: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the composed configuration, one of which has this value where the row does not count."""
    only_with: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the composed configuration that must all have these values, one of a list, for the row to count."""
    values: Mapping[str, str] = field(default_factory=dict)
    """New values for old ones, where a moved key also names its values differently."""
    reset: Any = _KEPT
    """What the old key of a moved row gets in the composed configuration; without it the key is removed."""
    command: str | None = None
    """`train` or `eval`: the row counts for this command of `agent-rl` alone."""
    section: str = ""
    """Heading of the row in the table."""

    @property
    def depends(self) -> bool:
        """Whether the row counts in a composed configuration only: other keys decide about it, or nothing changes."""
        return bool(self.unless or self.only_with) or self.kind == "unread"

    def found(self, key: str, text: str) -> str | None:
        """What `*` stands for in the key (empty without one); None when the row does not count for it."""
        rest = key.removeprefix(stem) if key.startswith(stem := self.old.removesuffix("*")) else None
        if rest is None or bool(rest) != self.old.endswith("*"):
            return None
        bare = text.strip("'\"")
        if self.default is not None and bare.lower() == self.default:
            return None
        return rest if self.when is None or re.fullmatch(self.when, bare, re.IGNORECASE | re.DOTALL) else None

    def holds(self, config: Any) -> bool:
        """Whether the other keys of the configuration are as the row wants them."""
        from omegaconf import OmegaConf

        def value(key: str) -> Any:
            return OmegaConf.select(config, key, throw_on_resolution_failure=False, throw_on_missing=False)

        wanted = {key: each if isinstance(each, list) else [each] for key, each in self.only_with.items()}
        return all(value(key) in those for key, those in wanted.items()) and not any(
            value(key) == other for key, other in self.unless.items()
        )

    def renamed(self, key: str, rest: str) -> str:
        """The new key of a key of which `*` stands for `rest`; empty when the row has none."""
        new = (self.new or "").replace("*", rest)
        return new[:-1] + key.rpartition(".")[2] if new.endswith("=") else new


@functools.cache
def rows() -> tuple[OldKey, ...]:
    """The table, in its order."""
    found = []
    for section, entries in yaml.load(TABLE.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader).items():
        for entry in entries:
            old = entry.pop("old")
            found += [OldKey(old=each, section=section, **entry) for each in ([old] if isinstance(old, str) else old)]
    return tuple(found)


def change_arguments(arguments: Sequence[str], command: str = "") -> tuple[list[str], list[str]]:
    """A command line with today's keys.

    Args:
        arguments: hydra overrides and options.
        command: of `agent-rl`, for rows that count there alone; empty: verl's own.

    Returns:
        The arguments, and a line for each that was changed.

    Raises:
        ConfigError: for a key that is refused, and for one that is given in both spellings.
    """
    arguments = _joined(arguments)
    changed, notes, given = [], [], argument_keys(arguments)
    made: set[str] = set()
    for number, argument in enumerate(arguments, 1):
        key, _, text = argument.lstrip("+").partition("=")
        new = _decide(Place(key), key, text, command=command) if key in given else None
        if new is None:
            changed.append(argument)
            continue
        _refuse_twice(key, new, argument_keys(arguments[number:]) | made)  # after today's key, the old one wins
        made.add(new.key)
        # hydra refuses a new key that verl does not know, except where verl's YAML files do not list the keys
        changed += [f"{'++' * is_free(new.key)}{new.key}={new.text}"] if new.key else []
        notes.append(new.note)
    return changed, notes


def argument_keys(arguments: Sequence[str]) -> set[str]:
    """The keys to which a command line gives values."""
    return {match["key"] for each in arguments if (match := _ARGUMENT.fullmatch(each))}


def change_config(config: Any, given: Collection[str] = (), file: Path | None = None) -> list[str]:
    """Give a composed configuration today's keys, in place.

    Args:
        config: the composed `DictConfig`.
        given: keys of the command line, which override those of YAML files.
        file: the user's YAML file, for the line in an error.

    Returns:
        A line for each key that was changed.

    Raises:
        ConfigError: for a key that is refused.
    """
    from omegaconf import OmegaConf, open_dict

    in_file = {key for key, _ in _leaves(OmegaConf.to_container(OmegaConf.load(file)))} if file else set()

    def decided(others: Any) -> Iterator[tuple[str, Any, _Moved]]:
        for key, value in _leaves(OmegaConf.to_container(config)):
            place = Place(key, file if key in in_file - set(given) else None, tuple(key.split(".")))
            if new := _decide(place, key, written(value), others):
                yield key, value, new

    notes = []
    for others in (None, config):  # rows that depend on other keys, when these have their places
        for key, value, new in list(decided(others)):
            if key in given:
                _refuse_twice(key, new, given)
            with open_dict(config):
                if new.row.reset is not _KEPT:
                    OmegaConf.update(config, key, new.row.reset, force_add=True)
                elif new.key != key:
                    _remove(config, key)
                if new.key and (new.key not in given or key in given):
                    same = new.text == written(value)
                    OmegaConf.update(config, new.key, value if same else yaml.safe_load(new.text), force_add=True)
            notes.append(new.note)
    return notes


def is_old(key: str) -> bool:
    """Whether nobody should write this key, whatever its value."""
    return any(row.when is None and not row.depends and row.command is None for row in _index()[0].get(key, ()))


def tell(notes: Sequence[str]) -> None:
    """Print what `change_arguments` or `change_config` changed, each line once in a process and those it starts."""
    for note in notes:
        told = os.environ.get(_TOLD, "")
        if note not in told.split("\n"):
            os.environ[_TOLD] = f"{told}\n{note}".strip()
            print(f"agent_rl: {note}", file=sys.stderr)


_TOLD = "AGENT_RL_OLD_KEYS_TOLD"


@dataclass(frozen=True)
class _Moved:
    row: OldKey
    key: str
    text: str
    note: str


def _decide(place: Place, key: str, text: str, config: Any = None, command: str = "") -> _Moved | None:
    """The new key and value of a key at its place; None for one that is not in the table.

    Args:
        place: of the key, for errors and notes.
        key: as it was given.
        text: its value, as it is written on the command line.
        config: the composed configuration, for rows that depend on other keys; None: these do not count yet.
        command: of `agent-rl`, for rows that count there alone.

    Raises:
        ConfigError: when the key, or what it has become, is refused.
    """
    moved: _Moved | None = None
    now, value, seen = key, text, {(key, text)}
    while found := _row(now, value, config, command):
        row, rest = found
        first = moved.row if moved else row
        if row.kind == "unread":
            note = f"{place}={text} has no effect: {row.why}" + (f". {row.write}" if row.write else "")
            return _Moved(first, now, value, note)
        value = row.values.get(value.strip("'\""), value)
        now = row.renamed(now, rest)
        if row.kind != "moved":
            if value != "null":
                write = row.write or (f"Write {now}={{value}}" if now else "Remove it")
                write = write.replace("{value}", value).replace("*", rest)
                raise place.error(f"{_PROBLEM[row.kind]} older releases (value {text}): {row.why}", write)
            now = ""
        became = f"{now}={value}" if now else "not needed any more"
        moved = _Moved(first, now, value, f"{place}={text} is {became}: {row.why}")
        if (now, value) in seen:
            break
        seen.add((now, value))
    return moved


def _row(key: str, text: str, config: Any, command: str) -> tuple[OldKey, str] | None:
    """The first row that counts, and what its `*` stands for; rows of exactly this key come first."""
    exact, patterns = _index()
    for row in (*exact.get(key, ()), *patterns):
        rest = row.found(key, text)
        if rest is None or row.command not in (None, command):
            continue
        if not row.depends or (config is not None and row.holds(config)):
            return row, rest
    return None


_PROBLEM = {"different": "changed since", "gone": "gone since"}


@functools.cache
def _index() -> tuple[Mapping[str, Sequence[OldKey]], Sequence[OldKey]]:
    """Rows by their key, and those of all keys below one."""
    exact: dict[str, list[OldKey]] = {}
    for row in rows():
        if not row.old.endswith("*"):
            exact.setdefault(row.old, []).append(row)
    return exact, [row for row in rows() if row.old.endswith("*")]


def _joined(arguments: Sequence[str]) -> list[str]:
    """The arguments with options of the table in one word: `--local_dir=x` for `--local_dir x`."""
    found: list[str] = []
    for argument in arguments:
        if found and found[-1] in _index()[0] and found[-1].startswith("--") and "=" not in argument:
            found[-1] += f"={argument}"
        else:
            found.append(argument)
    return found


def _refuse_twice(key: str, new: _Moved, given: Collection[str]) -> None:
    if new.key and new.key in given and new.key != key:
        raise ConfigError(key, f"it is now {new.key}, which is given too", "Leave one of them out")


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is not null and not a mapping, with its key."""
    for name, value in node.items():
        key = f"{path}.{name}".lstrip(".")
        if isinstance(value, Mapping):
            yield from _leaves(value, key)
        elif value is not None:
            yield key, value


def written(value: Any) -> str:
    """A value of YAML as it is written on hydra's command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(written(each) for each in value) + "]"
    text = str(value)
    return text if _PLAIN.fullmatch(text) or not isinstance(value, str) else "'" + text.replace("'", "\\'") + "'"


def _remove(config: Any, key: str) -> None:
    """Remove a key, and the sections that then are empty."""
    from omegaconf import OmegaConf

    parent, _, name = key.rpartition(".")
    section = OmegaConf.select(config, parent) if parent else config
    del section[name]
    if parent and not section:
        _remove(config, parent)
