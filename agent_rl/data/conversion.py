"""Converts raw data sets into files of rows. All scripts in `data_preprocess/` use this module.

    GSM8K = RawSet("gsm8k", to_row, hub={"train": Hub("openai/gsm8k", "main", "train")})
    run(GSM8K, __doc__)  # the command line of a script

`to_row` is a pure function of one raw example. Examples are streamed and rows are written in batches, so memory use
does not grow with the size of the data. The same input, options and seed always produce the same files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_rl.data.rows import ToRow
from agent_rl.data.sources import SPLITS, Raw, from_hub, read_raw, split_files, split_of
from agent_rl.data.storage import RowWriter
from agent_rl.errors import ConfigError
from agent_rl.work.progress import progress

if TYPE_CHECKING:
    import pandas as pd


class Hub(NamedTuple):
    """A split of a data set on the Hugging Face Hub."""

    name: str
    config: str | None = None
    split: str = "train"


@dataclass(frozen=True)
class RawSet:
    """A published data set, and the function that turns its examples into rows.

    Attributes:
        name: name of the output folder under `~/data`.
        to_row: makes one row from an example, `agent_name` and the values of the options in `arguments`.
        hub: location of each split on the Hub.
        agent_name: agent loop for the rows, unless `--agent_name` sets another one.
        arguments: additional command line options for argparse, whose values are passed to `prepare`.
        read: reads the examples of one file; the default reads CSV, JSON, JSON lines and parquet.
        prepare: called once with the options before reading starts; returns the options to pass to `to_row`.
        generate: makes the examples of each split, instead of reading them. The function gets the options, the seed,
            and the number of examples per split, and removes the options that it uses.
        test_share: share of the rows that moves to the `test` split, if the input has no such split.
        trial: returns the reason to omit a row, or "" to keep the row.
    """

    name: str
    to_row: ToRow
    hub: Mapping[str, Hub] = field(default_factory=dict)
    agent_name: str = "react_agent"
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    read: Callable[[Path], Iterable[Raw]] = read_raw
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = dict
    generate: Callable[[dict[str, Any], int, Mapping[str, int]], Mapping[str, Iterable[Raw]]] | None = None
    test_share: float = 0.0
    trial: Callable[[Mapping[str, Any]], str] | None = None

    def table(self, examples: pd.DataFrame, split: str = "train", **options: Any) -> pd.DataFrame:
        """Convert a table of examples to a table of rows, which `write_parquet` accepts.

        Args:
            examples: the examples, with the columns of the published data set; a missing value counts as null.
            split: the split to which all rows belong.
            options: options for `to_row`.

        Raises:
            ConfigError: an example cannot be converted; the error names the row and column.
        """
        import pandas as pd

        options, rows = {"agent_name": self.agent_name, **options}, list[dict[str, Any]]()
        examples = examples.astype(object).where(examples.notna(), None)
        for number, example in enumerate(examples.to_dict("records")):
            try:
                rows.append(self.to_row(_without_arrays(example), split, number, **options))
            except ConfigError as error:
                raise ConfigError(f"row {number}, {error.key}", error.problem, error.remedy) from error
        return pd.DataFrame(rows)


def _without_arrays(value: Any) -> Any:
    """Return a cell of a DataFrame with lists instead of arrays."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: _without_arrays(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_without_arrays, value))
    return value


def run(
    data_set: RawSet, description: str | None, arguments: Sequence[str] | None = None, command: str | None = None
) -> None:
    """Run the command line of a script; on an error, print one message and exit with status 2.

    Args:
        data_set: the data set to convert.
        description: text for `--help`.
        arguments: command line arguments; None means the arguments of the process.
        command: name of the command in `--help` and errors; None means the script's name.
    """
    common = vars(_parser(data_set, description, command).parse_args(arguments))
    names = [option.removeprefix("--") for option in data_set.arguments]
    options = {name: common.pop(name) for name in names}
    try:
        options = data_set.prepare(options)
        if data_set.generate is not None:
            sizes = {split: common[f"{split}_size"] for split in ("train", "test")}
            inputs = data_set.generate(options, common["seed"], sizes)
        else:
            inputs = _inputs(data_set, common)
        options |= {"agent_name": common["agent_name"]}
        if common["tools"]:
            options |= {"tool_selection": common["tools"]}
        counts, omitted = _convert(data_set, inputs, options, common)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\ninterrupted: no files were changed. Run the same command to start again", file=sys.stderr)
        sys.exit(130)
    for path, count in counts.items():
        print(f"{path.stem}: {count} rows in {path}")
    for reason, count in sorted(omitted.items()):
        print(f"omitted: {count} rows, {reason}")


def _convert(
    data_set: RawSet, inputs: Mapping[str, Iterable[Raw]], options: Mapping[str, Any], common: Mapping[str, Any]
) -> tuple[dict[Path, int], Counter[str]]:
    """Write `<split>.parquet` for every split; on an error, write no file.

    Args:
        data_set: the data set, whose `to_row` makes the rows.
        inputs: examples of each split.
        options: options for `to_row`.
        common: options that all data sets have.

    Returns:
        The number of rows in each file, and the number of rows omitted for each reason.

    Raises:
        ConfigError: an example cannot be read or converted; the error names the file and line.
    """
    folder, omitted = Path(common["local_save_dir"]).expanduser(), Counter[str]()
    writers: dict[str, RowWriter] = {}
    with ExitStack() as stack, progress("rows") as advance:
        for name, examples in inputs.items():
            for number, raw in enumerate(islice(examples, common["limit"])):
                try:
                    split = _split(raw.value, name, number, common)
                    if split not in writers:
                        writers[split] = stack.enter_context(RowWriter(folder / f"{split}.parquet"))
                    row = data_set.to_row(raw.value, split, writers[split].count, **options)
                    if reason := data_set.trial(row) if data_set.trial is not None else "":
                        omitted[reason] += 1
                    else:
                        writers[split].write(row)
                except ConfigError as error:
                    raise ConfigError(f"{raw.place}, {error.key}", error.problem, error.remedy) from error
                advance()
    return {writer.path: writer.count for writer in writers.values()}, omitted


def _split(example: Any, split: str, number: int, common: Mapping[str, Any]) -> str:
    """Return an example's split; a random share of the `train` rows, or of a column's values, moves to `test`."""
    key, column, share = number, common.get("split_by"), common.get("test_share")
    if column is not None:
        key = value_of(example, column)
        if str(key).lower() in SPLITS:
            return SPLITS[str(key).lower()]
    if split != "train" or not share:
        return split
    digest = hashlib.blake2b(f"{common['seed']} {key}".encode(), digest_size=8).digest()
    is_test = int.from_bytes(digest, "big") < share * 2**64
    return "test" if is_test or (number == 0 and column is None) else split  # row 0 makes sure that `test` is not empty


def value_of(example: Mapping[str, Any], *names: str) -> Any:
    """Return the value of the first of these columns that the example contains.

    Raises:
        ConfigError: the example contains none of the columns, or the value is null or NaN.
    """
    name = next((name for name in names if name in example), None)
    if name is None:
        has = f"It has {', '.join(map(str, example)) or 'no column'}"
        raise ConfigError(f"column {names[0]}", f"there is no column {' or '.join(names)}", has)
    value = example[name]
    if value is None or value != value:
        raise ConfigError(f"column {name}", f"the value is {value}", "Fill it in, or remove the row")
    return value


def text_of(example: Mapping[str, Any], *names: str) -> str:
    """Return the text of the first of these columns that the example contains.

    Raises:
        ConfigError: the example contains none of the columns, or the value is not text or is empty.
    """
    value = value_of(example, *names)
    if not isinstance(value, str) or not value.strip():
        name = next(name for name in names if name in example)
        raise ConfigError(f"column {name}", f"expected text, got {value!r:.80}", "Fill it in, or remove the row")
    return value


def json_of(example: Mapping[str, Any], name: str) -> Any:
    """Return the value of a column that contains JSON data or JSON text.

    Raises:
        ConfigError: the column is missing or empty, or its text is not JSON.
    """
    value = value_of(example, name)
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ConfigError(
            f"column {name}", f"not valid JSON ({error})", "Write JSON, as in the original data set"
        ) from error


def _parser(data_set: RawSet, description: str | None, command: str | None) -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter if command else argparse.HelpFormatter
    usage = f"{command} [FILE ...] [OPTIONS]" if command else "%(prog)s [OPTIONS]"
    parser = argparse.ArgumentParser(command, usage, description, formatter_class=layout)
    add = partial(parser.add_argument, metavar="<str>")
    number = partial(parser.add_argument, metavar="<int>", type=int)
    if data_set.generate is None:
        path, hub = partial(parser.add_argument, metavar="<path>"), next(iter(data_set.hub.values()), Hub("none"))
        path("--input", nargs="+", help="Input files; a word in a file's name, such as test, sets the split")
        path("--local_dataset_path", help="A folder with train and test files, or a single file")
        add("--hub", help=f"Data set on the Hub, default: {hub.name}")
        add("--split_by", help="Column with the split, or a column whose equal values must stay in one split")
        text = "Share of train rows for the test split, default: %(default)s"
        add("--test_share", metavar="<float>", type=_share, default=data_set.test_share, help=text)
    else:
        number("--train_size", type=_count, default=5000, help="Number of training rows, default: %(default)s")
        number("--test_size", type=_count, default=500, help="Number of test rows, default: %(default)s")
    default = f"~/data/{data_set.name}"
    folders = "--local_save_dir", "--local_dir", "--out"
    add(*folders, metavar="<path>", default=default, help="Output folder, default: %(default)s")
    add("--agent_name", default=data_set.agent_name, help="Agent loop for the rows, default: %(default)s")
    add("--tools", nargs="+", help="Limit the rows to these tools; default: all tools of the run")
    number("--limit", type=_positive, help="Number of rows to convert in each split, default: all")
    number("--seed", default=0, help="Random seed, default: %(default)s")
    for name, option in data_set.arguments.items():
        parser.add_argument(name, **option)
    return parser


def _number(text: str, kind: type, low: float, high: float, expected: str) -> Any:
    with suppress(ValueError):
        if low <= (number := kind(text)) < high:
            return number
    raise argparse.ArgumentTypeError(f"expected {expected}, got {text}")


_count = partial(_number, kind=int, low=0, high=math.inf, expected="a whole number that is not negative")
_positive = partial(_number, kind=int, low=1, high=math.inf, expected="a whole number of 1 or more")
_share = partial(_number, kind=float, low=0, high=1, expected="a share of at least 0 and less than 1")


def _inputs(data_set: RawSet, common: Mapping[str, Any]) -> dict[str, Iterable[Raw]]:
    files: dict[str, list[Path]] = {}
    for path in map(Path, common["input"] or ()):
        files.setdefault(split_of(path), []).append(path.expanduser())
    if common["local_dataset_path"]:
        place = Path(common["local_dataset_path"]).expanduser()
        files |= split_files(place) if place.is_dir() else {split_of(place): [place]}
    if files:
        return {split: chain.from_iterable(map(data_set.read, paths)) for split, paths in files.items()}
    hub = data_set.hub
    if common["hub"]:
        splits = {split: part._replace(name=common["hub"]) for split, part in hub.items()}
        hub = splits or {"train": Hub(common["hub"])}
    if not hub:
        raise ConfigError("--input", "there is no input", "Pass files with --input, or a data set with --hub")
    return {split: from_hub(*part) for split, part in hub.items()}
