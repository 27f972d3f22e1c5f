"""Old spellings of keys: the names that settings had in earlier releases of verl, and in guides for those releases.

The table of old keys is `old_keys.yaml` next to this file. A key that has moved takes effect under its new name, and a
line on stderr reports the change. A key that lost or changed its meaning raises an error with a remedy.
The table is applied twice: to the command line before hydra reads it (`change_arguments`), and to the composed
configuration (`change_config`), which also contains the keys from YAML files and the keys on which some rows depend.
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
from agent_rl.trajectory.run_files import leaves

RUN = "AGENT_RL_RUN"
"""Environment variable that tells a run's processes that the launcher has already changed their command lines."""

FREE = (
    "agent_rl",  # `AgentRLSettings` rejects unknown keys
    "ray_kwargs.ray_init",
    "actor_rollout_ref.model.override_config",
    "actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs",
    "actor_rollout_ref.rollout.engine_kwargs",
    "critic.model.override_config",
    "data.apply_chat_template_kwargs",
    "data.mm_processor_kwargs",
    "reward.custom_reward_function.reward_kwargs",
    "reward.reward_kwargs",
    "reward.reward_model.rollout.engine_kwargs",
    "trainer.v1.sampler.sampler_kwargs",
    "actor_rollout_ref.actor.fsdp_config.mixed_precision",
    "actor_rollout_ref.ref.fsdp_config.mixed_precision",
    "critic.fsdp.mixed_precision",
)
"""Sections that accept any key or that verl's YAML omits, namely those for agent_rl, Ray, transformers, engines, torch,
chat templates and reward functions."""

TABLE = Path(__file__).with_suffix(".yaml")
_ARGUMENT = re.compile(r"\+{0,2}(?P<key>(--|\$)?[A-Za-z_][^=\s]*)=.*", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+?-]+")
_KEPT = object()


@dataclass(frozen=True)
class OldKey:
    """A row of the table of old keys.

    `*` at the end of `old` matches all keys in that section; in `new` and `write`, `*` stands for the matched part. `=`
    at the end of `new` stands for the last part of the old key.
    """

    old: str
    kind: Literal["moved", "different", "gone", "unread"]
    """`unread` marks a current key that a run does not read; a line on stderr reports the key, and nothing changes."""
    why: str
    """The reason for the change, as one line for messages."""
    new: str | None = None
    """The current key with the meaning of the old key. If a `moved` row has no `new`, the old key is dropped, because
    it is no longer needed."""
    write: str = ""
    """The remedy for a rejected key, in which `{value}` stands for its value; empty means `new={value}`."""
    when: str | None = None
    """Pattern that the whole value must match, ignoring case, for the row to apply."""
    default: str | None = None
    """verl's default, as written on the command line; the row does not apply to this value."""
    unless: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the composed configuration; the row does not apply if one of them has the given value."""
    only_with: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the composed configuration; the row applies only if each key has one of its given values."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Mapping of old values to new values, for a moved key whose values were also renamed."""
    reset: Any = _KEPT
    """Value that the old key of a moved row gets in the composed configuration; by default, the old key is removed."""
    command: str | None = None
    """`train` or `eval`: the only `agent-rl` command to which the row applies."""
    section: str = ""
    """The heading above the row in the table."""

    @property
    def depends(self) -> bool:
        """Whether the row applies only to a composed configuration, because it depends on other keys or is `unread`."""
        return bool(self.unless or self.only_with) or self.kind == "unread"

    def match(self, key: str, text: str) -> str | None:
        """Return what `*` stands for in the key (empty if there is no `*`), or None if the row does not apply to the
        key.
        """
        rest = key.removeprefix(stem) if key.startswith(stem := self.old.removesuffix("*")) else None
        if rest is None or bool(rest) != self.old.endswith("*"):
            return None
        bare = text.strip("'\"")
        if self.default is not None and bare.lower() == self.default:
            return None
        return rest if self.when is None or re.fullmatch(self.when, bare, re.IGNORECASE | re.DOTALL) else None

    def holds(self, config: Any) -> bool:
        """Whether the other keys of the configuration have the values that the row requires."""
        from omegaconf import OmegaConf

        def current(key: str) -> Any:
            return OmegaConf.select(config, key, throw_on_resolution_failure=False, throw_on_missing=False)

        required = {key: value if isinstance(value, list) else [value] for key, value in self.only_with.items()}
        return all(current(key) in values for key, values in required.items()) and not any(
            current(key) == value for key, value in self.unless.items()
        )

    def renamed(self, key: str, rest: str) -> str:
        """Return the new name of a key whose `*` stands for `rest`, or "" if the row has no new name."""
        new = (self.new or "").replace("*", rest)
        return new[:-1] + key.rpartition(".")[2] if new.endswith("=") else new


@functools.cache
def rows() -> tuple[OldKey, ...]:
    """Return the rows of the table, in order."""
    table = []
    for section, entries in yaml.load(TABLE.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader).items():
        for entry in entries:
            old = entry.pop("old")
            table += [OldKey(old=key, section=section, **entry) for key in ([old] if isinstance(old, str) else old)]
    return tuple(table)


def change_arguments(arguments: Sequence[str], command: str = "") -> tuple[list[str], list[str]]:
    """Rewrite a command line with the current keys.

    Args:
        arguments: hydra overrides and options.
        command: the `agent-rl` command, for rows that apply only to it; empty means verl's command line.

    Returns:
        The rewritten arguments, and one line about each changed argument.

    Raises:
        ConfigError: a key is rejected, or is given in both spellings.
    """
    arguments = _joined(arguments)
    changed, notes, keys = [], [], argument_keys(arguments)
    new_keys: set[str] = set()
    for number, argument in enumerate(arguments, 1):
        key, _, text = argument.lstrip("+").partition("=")
        new = _decide(Place(key), key, text, command=command) if key in keys else None
        if new is None:
            changed.append(argument)
            continue
        _refuse_twice(
            key, new, argument_keys(arguments[number:]) | new_keys
        )  # an old key may override a current key to its left
        new_keys.add(new.key)
        # `++` lets hydra accept keys that verl's YAML files do not list, which only the `FREE` sections may contain
        changed += [f"{'++' * is_free(new.key)}{new.key}={new.text}"] if new.key else []
        notes.append(new.note)
    return changed, notes


def argument_keys(arguments: Sequence[str]) -> set[str]:
    """Return the keys that a command line sets."""
    return {match["key"] for argument in arguments if (match := _ARGUMENT.fullmatch(argument))}


def change_config(config: Any, given: Collection[str] = (), file: Path | None = None) -> list[str]:
    """Rename the old keys of a composed configuration, in place.

    Args:
        config: the composed `DictConfig`.
        given: the keys on the command line, which override the keys of YAML files.
        file: the user's YAML file, for line numbers in errors.

    Returns:
        One line about each changed key.

    Raises:
        ConfigError: a key is rejected.
    """
    from omegaconf import OmegaConf, open_dict

    in_file = {key for key, _ in leaves(OmegaConf.to_container(OmegaConf.load(file)))} if file else set()

    def replacements(others: Any) -> Iterator[tuple[str, Any, _Moved]]:
        for key, value in leaves(OmegaConf.to_container(config)):
            if value in (None, {}):
                continue
            place = Place(key, file if key in in_file - set(given) else None, tuple(key.split(".")))
            if new := _decide(place, key, written(value), others):
                yield key, value, new

    notes = []
    for others in (None, config):  # replacements that depend on other keys wait for the second pass
        for key, value, new in list(replacements(others)):
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


def current_value(key: str, value: str, shown: str) -> Any:
    """Return the current value for an old value of a key, and report it on stderr; return other values unchanged.

    Args:
        key: the key in the table.
        value: the value in the configuration.
        shown: the key in the configuration, for the line on stderr.
    """
    moved = _decide(Place(shown), key, value)
    if moved is None:
        return value
    tell([f"{shown}={value} is {shown}={moved.text}: {moved.row.why}"])
    return yaml.safe_load(moved.text)


def old_values(key: str, value: Any) -> list[str]:
    """Return the old values of a key that are equivalent to the given current value."""
    rows = _index()[0].get(key, ())
    return [old for row in rows for old, new in row.values.items() if yaml.safe_load(new) == value]


def is_free(key: str) -> bool:
    """Whether the key is one of the `FREE` sections, or inside one."""
    return any(f"{key}.".startswith(f"{section}.") for section in FREE)


def is_old(key: str) -> bool:
    """Whether the key is old, regardless of its value."""
    return any(row.when is None and not row.depends and row.command is None for row in _index()[0].get(key, ()))


def tell(notes: Sequence[str]) -> None:
    """Print the notes from `change_arguments` or `change_config`, each only once in this process and its children."""
    for note in notes:
        printed = os.environ.get(_PRINTED, "")
        if note not in printed.split("\n"):
            os.environ[_PRINTED] = f"{printed}\n{note}".strip()
            print(f"agent_rl: {note}", file=sys.stderr)


_PRINTED = "AGENT_RL_OLD_KEYS_TOLD"


@dataclass(frozen=True)
class _Moved:
    row: OldKey
    key: str
    text: str
    note: str


def _decide(place: Place, key: str, text: str, config: Any = None, command: str = "") -> _Moved | None:
    """Return the new key and value of a key, or None if no row of the table applies.

    Args:
        place: the key's location, for errors and notes.
        key: the key as the user wrote it.
        text: the value, as written on the command line.
        config: the composed configuration, for rows that depend on other keys; if None, those rows are skipped.
        command: the `agent-rl` command, for rows that apply only to it.

    Raises:
        ConfigError: the key, or its new name, is rejected.
    """
    moved: _Moved | None = None
    now, value, seen = key, text, {(key, text)}
    while match := _row(now, value, config, command):
        row, rest = match
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
                change = "changed" if row.kind == "different" else "removed"
                raise place.error(f"{change} since older releases (value {text}): {row.why}", write)
            now = ""
        current = f"{now}={value}" if now else "no longer needed"
        moved = _Moved(first, now, value, f"{place}={text} is {current}: {row.why}")
        if (now, value) in seen:
            break
        seen.add((now, value))
    return moved


def _row(key: str, text: str, config: Any, command: str) -> tuple[OldKey, str] | None:
    """Return the first row that applies, and what its `*` stands for; rows that name the key exactly come first."""
    exact, patterns = _index()
    for row in (*exact.get(key, ()), *patterns):
        rest = row.match(key, text)
        if rest is None or row.command not in (None, command):
            continue
        if not row.depends or (config is not None and row.holds(config)):
            return row, rest
    return None


@functools.cache
def _index() -> tuple[Mapping[str, Sequence[OldKey]], Sequence[OldKey]]:
    """Return a mapping from each old key to its rows, and the rows whose old key ends in `*`."""
    exact: dict[str, list[OldKey]] = {}
    for row in rows():
        if not row.old.endswith("*"):
            exact.setdefault(row.old, []).append(row)
    return exact, [row for row in rows() if row.old.endswith("*")]


def _joined(arguments: Sequence[str]) -> list[str]:
    """Join each option that is in the table with its value: `--local_dir x` becomes `--local_dir=x`."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] in _index()[0] and joined[-1].startswith("--") and "=" not in argument:
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def _refuse_twice(key: str, new: _Moved, keys: Collection[str]) -> None:
    if new.key and new.key in keys and new.key != key:
        raise ConfigError(key, f"this key is now {new.key}, which is also set", "Remove one of them")


def written(value: Any) -> str:
    """Return a YAML value in the syntax of hydra's command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(written(item) for item in value) + "]"
    text = str(value)
    return text if _PLAIN.fullmatch(text) or not isinstance(value, str) else "'" + text.replace("'", "\\'") + "'"


def _remove(config: Any, key: str) -> None:
    """Remove a key, and any section that becomes empty."""
    from omegaconf import OmegaConf

    parent, _, name = key.rpartition(".")
    section = OmegaConf.select(config, parent) if parent else config
    del section[name]
    if parent and not section:
        _remove(config, parent)
