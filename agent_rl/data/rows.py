"""The row contract: what a line of a parquet file must hold for verl's dataset and for the agent loops.

| column | type | who reads it |
| --- | --- | --- |
| `data_source` | str | rewards (which scorer), verl's validation metrics |
| `agent_name` | str | verl: the agent loop of this row; without it, verl's default loop runs, which knows no tools |
| `prompt` | list of `{role, content}` | the loop, as `raw_prompt`; the loop itself adds tool descriptions and format |
| `ability` | str, optional | nobody in verl; a label for people |
| `reward_model` | `{style, ground_truth: str}` | rewards |
| `extra_info.index` | int or str, one type a file | verl, as the column `index` |
| `extra_info.split`, `.question` | str | traces and reports |
| `extra_info.tools_kwargs` | `{tool: {"create_kwargs": {...}}}`, optional | tools, as the column `tools_kwargs` |
| `extra_info.need_tools_kwargs` | bool, optional | verl, which warns when `tools_kwargs` is then empty |
| `extra_info.tool_selection` | list of str, optional | the loop: the only tools of this row |

A parquet column has one struct type, and keys that a row lacks are read as null. That is harmless for most keys, but
verl's tool loop fails on a null in `tools_kwargs`: its keys must be the same in all rows of a file, and in all files of
a run, which verl joins (the checks see one file at a time). Parquet cannot hold a struct without keys: `make_row`
removes empty mappings from `tools_kwargs`.

The checks look at the form only. They do not know which agent loops, tools or data sources exist.
"""

from __future__ import annotations

import bisect
import os
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.trajectory import Message, Role

__all__ = ["check_parquet", "check_rows", "make_row", "read_parquet", "write_parquet"]

ROLES: tuple[str, ...] = get_args(Role)
REQUIRED_COLUMNS = ("data_source", "agent_name", "prompt", "reward_model", "extra_info")
RESERVED_KEYS = {
    **{key: key for key in ("split", "index", "question", "tools_kwargs", "tool_selection")},
    "need_tools_kwargs": "tools_kwargs",  # make_row derives it
}


def make_row(
    *,
    prompt: Sequence[Mapping[str, Any] | Message] | None = None,
    question: str | None = None,
    data_source: str,
    ground_truth: str | int | float,
    split: str,
    index: int | str,
    agent_name: str = "react_agent",
    ability: str = "math",
    extra_info: Mapping[str, Any] | None = None,
    tools_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    tool_selection: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Build one row of the contract and check it.

    Args:
        prompt: the messages of the prompt, the last one from the user; None: one user message with `question`.
        question: the question alone, kept in `extra_info.question`; None: the text of the prompt's last message.
        data_source: name of the dataset; it selects the scorer, and groups the metrics.
        ground_truth: the right answer; numbers are stored as text.
        split: `train`, `test`, ...
        index: number or name of the row within its split.
        agent_name: name under which the agent loop is registered.
        ability: a label of the kind of task.
        extra_info: further JSON data of the row, for example `answer`.
        tools_kwargs: arguments of the tools for this row, `{tool: {"create_kwargs": {...}}}`.
        tool_selection: names of the only tools that this row may use; None: all.

    Raises:
        ConfigError: naming the row, the column, the value and the remedy.
    """
    place = f"{data_source}, {split} row {index}"
    if prompt is None:
        if question is None:
            raise ConfigError(f"{place}, column prompt", "neither prompt nor question is given", "Give one of them")
        prompt = [{"role": "user", "content": question}]
    messages = [_message(message, place, number) for number, message in enumerate(prompt)]
    row = {
        "data_source": data_source,
        "agent_name": agent_name,
        "prompt": messages,
        "ability": ability,
        "reward_model": {"style": "rule", "ground_truth": _as_text(ground_truth)},
        "extra_info": {
            "split": split,
            "index": index,
            "question": question if question is not None or not messages else messages[-1]["content"],
            **_further_info(extra_info or {}, place),
            **_tool_info(tools_kwargs, tool_selection),
        },
    }
    _check_row(row, place)
    return row


def check_rows(rows: Iterable[Mapping[str, Any]], *, source: str = "rows") -> None:
    """Check rows against the contract; rows are counted from 0.

    Args:
        rows: from `make_row` or from anywhere else.
        source: name of the rows for errors, usually the path of their file.

    Raises:
        ConfigError: for the first row that breaks the contract, naming source, row, column, value and remedy.
    """
    first: Mapping[str, Any] | None = None
    for number, row in enumerate(rows):
        place = f"{source}, row {number}"
        _check_row(row, place)
        if first is None:
            first = row
        else:
            _check_like_first(row, first, place)
    if first is None:
        raise ConfigError(source, "there are no rows", "Check the source of the rows")


def check_parquet(path: str | os.PathLike[str]) -> None:
    """Check a parquet file against the contract.

    Raises:
        ConfigError: when the file cannot be read, or for the first row that breaks the contract.
    """
    check_rows(read_parquet(path), source=str(path))


def write_parquet(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Check the rows and write them in one atomic step; parent folders are created.

    Raises:
        ConfigError: for a row that breaks the contract, for values that parquet cannot hold, and for a file that cannot
            be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = list(rows)
    check_rows(rows, source=str(path))
    table = pa.table({name: _column([row[name] for row in rows], name, path) for name in rows[0]})
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            pq.write_table(table, temporary)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except pa.ArrowException as error:
        raise ConfigError(str(path), f"parquet cannot hold the rows ({error})", "Leave empty mappings out") from error
    except OSError as error:
        problem = f"it cannot be written: {error.strerror}"
        raise ConfigError(str(path), problem, "Name a place that you may write to") from error


def read_parquet(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a parquet file; keys that a row lacks within a struct are None.

    Raises:
        ConfigError: when the file is absent or is not parquet.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(os.fspath(path), partitioning=None).to_pylist()
    except FileNotFoundError as error:
        raise ConfigError(str(path), "there is no such file", "Correct the path, or write the file first") from error
    except pa.ArrowException as error:
        raise ConfigError(str(path), f"not a parquet file ({error})", "Write it again with write_parquet") from error
    return rows


def _message(message: Mapping[str, Any] | Message, place: str, number: int) -> dict[str, Any]:
    """Role and content; `_check_row` checks their values."""
    column = f"{place}, column prompt[{number}]"
    if isinstance(message, Message):
        message = {name: getattr(message, name) for name in Message.__slots__}
    if not isinstance(message, Mapping):
        raise ConfigError(column, f"{reprlib.repr(message)} is not a message", "Write {'role': ..., 'content': ...}")
    further = sorted(key for key, value in message.items() if key not in ("role", "content") and value)
    if further:
        raise ConfigError(
            column, f"a row cannot hold a message's {', '.join(further)}", "Write such turns as text in content"
        )
    return {"role": message.get("role"), "content": message.get("content")}


def _as_text(value: Any) -> Any:
    """Numbers as text; anything else unchanged, for the checks."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _further_info(extra_info: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The caller's keys, sorted, so that all files have one schema."""
    for key, argument in RESERVED_KEYS.items():
        if key in extra_info:
            raise ConfigError(f"{place}, column extra_info.{key}", "the key is reserved", f"Use make_row's {argument}")
    return {key: extra_info[key] for key in sorted(extra_info)}


def _tool_info(tools_kwargs: Any, tool_selection: Any) -> dict[str, Any]:
    info: dict[str, Any] = {}
    kept = _without_empty(tools_kwargs)
    if kept is not None:
        info |= {"need_tools_kwargs": True, "tools_kwargs": kept}
    if tool_selection is not None:
        info["tool_selection"] = tool_selection if isinstance(tool_selection, str) else list(tool_selection)
    return info


def _without_empty(value: Any) -> Any:
    """The value without empty mappings at any depth; None for a mapping that is empty then."""
    if not isinstance(value, Mapping):
        return value
    kept = {}
    for key in sorted(value):
        item = _without_empty(value[key])
        if item is not None or value[key] is None:
            kept[key] = item
    return kept or None


def _check_row(row: Mapping[str, Any], place: str) -> None:
    if not isinstance(row, Mapping):
        raise ConfigError(place, f"{reprlib.repr(row)} is not a mapping", "Build rows with make_row")
    for name in REQUIRED_COLUMNS:
        if row.get(name) is None:
            problem = f"the value is {row[name]!r}" if name in row else "the column is missing"
            raise ConfigError(f"{place}, column {name}", problem, "Build rows with make_row")
    _check_text(row["data_source"], f"{place}, column data_source", "Name the dataset")
    _check_text(row["agent_name"], f"{place}, column agent_name", "Name a registered agent loop")
    if row.get("ability") is not None:
        _check_text(row["ability"], f"{place}, column ability", "Write a label, or leave the column out")
    _check_prompt(row["prompt"], f"{place}, column prompt")
    _check_mapping(row["reward_model"], f"{place}, column reward_model", "Write {'style': 'rule', 'ground_truth': ...}")
    truth = row["reward_model"].get("ground_truth")
    _check_text(truth, f"{place}, column reward_model.ground_truth", "Give the right answer as text")
    _check_extra_info(row["extra_info"], f"{place}, column extra_info")


def _check_text(value: Any, key: str, remedy: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(key, f"expected text, got {reprlib.repr(value)} ({type(value).__name__})", remedy)


def _check_mapping(value: Any, key: str, remedy: str) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(key, f"expected a mapping, got {reprlib.repr(value)} ({type(value).__name__})", remedy)


def _check_list(value: Any, key: str, remedy: str) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ConfigError(key, f"expected a list with entries, got {reprlib.repr(value)}", remedy)


def _check_prompt(prompt: Any, key: str) -> None:
    _check_list(prompt, key, "Write [{'role': 'user', 'content': ...}]")
    for number, message in enumerate(prompt):
        place = f"{key}[{number}]"
        _check_mapping(message, place, "Write {'role': ..., 'content': ...}")
        role = message.get("role")
        if role not in ROLES:
            raise ConfigError(f"{place}.role", f"unknown role {role!r}", did_you_mean(str(role), ROLES))
        _check_text(message.get("content"), f"{place}.content", "Write the message's text")
    if role != "user":
        raise ConfigError(f"{place}.role", f"the last message is from {role!r}", "End the prompt with a user message")


def _check_extra_info(info: Any, key: str) -> None:
    _check_mapping(info, key, "Write {'split': ..., 'index': ...}")
    index = info.get("index")
    if isinstance(index, bool) or not isinstance(index, int | str):
        raise ConfigError(
            f"{key}.index", f"expected an int or text, got {reprlib.repr(index)}", "Number the rows of the split from 0"
        )
    for name in ("split", "question"):
        if info.get(name) is not None:
            _check_text(info[name], f"{key}.{name}", "Write text, or leave the key out")
    selection = info.get("tool_selection")
    if selection is not None:
        remedy = "List the names of the row's tools, or leave the key out for all tools (verl takes an empty list so)"
        _check_list(selection, f"{key}.tool_selection", remedy)
        for number, name in enumerate(selection):
            _check_text(name, f"{key}.tool_selection[{number}]", remedy)
    _check_tools_kwargs(info.get("tools_kwargs"), f"{key}.tools_kwargs")


def _check_tools_kwargs(value: Any, key: str, depth: int = 0) -> None:
    """Check that it is a mapping of mappings, and that no mapping in it is empty: parquet cannot hold that."""
    if value is None and depth == 0:
        return
    if depth < 2:
        _check_mapping(value, key, "Write {tool: {'create_kwargs': {...}}}, the same keys in all rows")
    if not isinstance(value, Mapping):
        return
    if not value:
        raise ConfigError(key, "the mapping is empty, which parquet cannot hold", "Leave the key out")
    for name, item in value.items():
        _check_tools_kwargs(item, f"{key}.{name}", depth + 1)


def _check_like_first(row: Mapping[str, Any], first: Mapping[str, Any], place: str) -> None:
    """Check what must be the same in all rows of a file."""
    for name in [*first, *row]:
        if name not in row or name not in first:
            raise ConfigError(
                f"{place}, column {name}", "not all rows have this column", "Give it to all rows, or to none"
            )
    index, first_index = row["extra_info"]["index"], first["extra_info"]["index"]
    if isinstance(index, str) != isinstance(first_index, str):
        raise ConfigError(
            f"{place}, column extra_info.index",
            f"{index!r} is {type(index).__name__}, but row 0 has {first_index!r} ({type(first_index).__name__})",
            "Use one type in all rows",
        )
    shape, first_shape = (_shape(each["extra_info"].get("tools_kwargs")) for each in (row, first))
    if shape != first_shape:
        raise ConfigError(
            f"{place}, column extra_info.tools_kwargs",
            f"the keys {shape} differ from row 0's {first_shape}",
            "Give all rows of a file the same keys: parquet fills the gaps with null, on which verl's tool loop fails",
        )


def _shape(value: Any) -> Any:
    """The keys at every depth; None for a value that is not a mapping."""
    return {key: _shape(value[key]) for key in sorted(value)} if isinstance(value, Mapping) else None


def _column(values: list[Any], name: str, path: str | os.PathLike[str]) -> Any:
    """The values as an arrow array.

    Raises:
        ConfigError: naming the first row with a value of another type than the rows before it.
    """
    import pyarrow as pa

    def problem(count: int) -> str:
        try:
            pa.array(values[:count])
        except (pa.ArrowException, OverflowError) as error:
            return str(error)
        return ""

    if not problem(len(values)):
        return pa.array(values)
    count = bisect.bisect_left(range(len(values)), True, key=lambda count: bool(problem(count)))
    found = f"{reprlib.repr(values[count - 1])} has another type than the rows before it ({problem(count)})"
    raise ConfigError(f"{path}, row {count - 1}, column {name}", found, "Give each key one type in all rows")
