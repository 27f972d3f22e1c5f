"""Reads raw data sets from files or the Hub, one example at a time, with each example's location for error messages.

Files may be compressed (`.gz`). Python's own parsers read CSV and JSON lines line by line, not into a table. These
parsers report the line of an error, do not guess types ("007" stays text), and need no more memory for a million rows
than for a few.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from agent_rl.errors import ConfigError, did_you_mean

SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
SPLITS = {
    **{"train": "train", "training": "train", "test": "test"},
    **dict.fromkeys(("validation", "valid", "val", "dev", "eval"), "validation"),
}
"""For each name that data sets give to a split, the name of the output split."""
_LARGEST_FIELD = 2**31 - 1
_SHARD = re.compile(r"(?P<name>[A-Za-z]+)([-_.]\d+(-of-\d+(-[0-9a-f]{16})?)?)?")


class Raw(NamedTuple):
    """One example: its location, such as `data_set.jsonl, line 3`, and its columns or a generator's output."""

    place: str
    value: Any


def read_raw(path: str | os.PathLike[str]) -> Iterator[Raw]:
    """Yield the examples of a file.

    Raises:
        ConfigError: the file cannot be read, is of an unknown kind or contains no examples, or a line or row is broken;
            the examples before the broken line have already been yielded.
    """
    file = Path(path).expanduser()
    read = _reader(file)
    empty = True
    try:
        for raw in read(file):
            empty = False
            yield raw
    except (OSError, EOFError, zlib.error) as error:
        problem = f"it cannot be read ({getattr(error, 'strerror', None) or error})"
        raise ConfigError(str(file), problem, "Copy or download it again, and check that you may read it") from error
    if empty:
        problem = "the file is empty" if not file.stat().st_size else "there are no rows"
        raise ConfigError(str(file), problem, "Check the source of the file")


def from_hub(name: str, config: str | None = None, split: str = "train") -> Iterator[Raw]:
    """Stream the examples of a data set on the Hugging Face Hub.

    Raises:
        ConfigError: the Hub cannot be reached, or contains no such data set.
    """
    try:
        import datasets
    except ImportError as error:
        remedy = "Run pip install datasets, or pass files with --input"
        raise ConfigError(name, "data sets on the Hub need the datasets package", remedy) from error

    try:
        examples = datasets.load_dataset(name, config, split=split, streaming=True)
        for number, value in enumerate(examples):
            yield Raw(f"{name}, {split} row {number}", dict(value))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        problem = f"the data set cannot be loaded from the Hugging Face Hub ({str(error).splitlines()[0]})"
        remedy = "Check the name, or download the files and pass them with --input (or --local_dataset_path FOLDER)"
        raise ConfigError(name, problem, remedy) from error


def split_of(path: str | os.PathLike[str]) -> str:
    """Return the first split whose name is a word in the file's name; without such a word, return `train`."""
    words = re.findall(r"[a-z]+", Path(path).name.lower())
    return next((SPLITS[word] for word in words if word in SPLITS), "train")


def split_files(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each split (one file, or the Hub's shards) in a folder or its `main` or `data` subfolder.

    Raises:
        ConfigError: the folder contains no such files, or a split has files of two kinds.
    """
    place = next((folder / name for name in ("main", "data") if (folder / name).is_dir()), folder)
    files: dict[str, list[Path]] = {}
    for path in sorted(place.iterdir()):
        match = _SHARD.fullmatch(path.name.removesuffix(".gz").rpartition(".")[0])
        if match and match["name"].lower() in SPLITS and _suffix(path) in SUFFIXES:
            files.setdefault(SPLITS[match["name"].lower()], []).append(path)
    if not files:
        problem = f"the folder has no file such as train.jsonl or test.parquet (extensions: {', '.join(SUFFIXES)})"
        raise ConfigError(str(place), problem, "Pass the files with --input")
    for split, paths in files.items():
        if len({_suffix(path) for path in paths}) > 1:
            names = ", ".join(path.name for path in paths)
            raise ConfigError(str(place), f"two kinds of files contain the {split} split ({names})", "Keep one of them")
    return files


def _suffix(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix.replace(".ndjson", ".jsonl")


def _reader(file: Path) -> Callable[[Path], Iterator[Raw]]:
    if file.is_dir():
        raise ConfigError(str(file), "it is a folder", "Pass the files, or use --local_dataset_path FOLDER")
    suffix = _suffix(file)
    kinds = {".csv": _csv, ".tsv": _csv, ".json": _json, ".jsonl": _json, ".parquet": _parquet}
    if suffix not in kinds:
        problem = f"files with the extension {suffix or '(none)'} cannot be read"
        raise ConfigError(str(file), problem, f"Write the file as one of {', '.join(SUFFIXES)}")
    if not file.exists():
        near = [path.name for path in file.parent.glob("*") if _suffix(path) in SUFFIXES]
        remedy = did_you_mean(file.name, near) if near else "Correct the path"
        raise ConfigError(str(file), "there is no such file", remedy)
    return kinds[suffix]


def _open(file: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(file, "rb")) if file.name.lower().endswith(".gz") else open(file, "rb")


def _decoded(file: Path, lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            problem = f"it is not UTF-8 (byte {line[error.start]:#04x})"
            remedy = "Save the file as UTF-8, for example with `iconv -f latin1 -t utf-8`"
            raise ConfigError(f"{file}, line {number}", problem, remedy) from error


def _csv(file: Path) -> Iterator[Raw]:
    csv.field_size_limit(_LARGEST_FIELD)
    with _open(file) as lines:
        reader = csv.reader(_decoded(file, lines), delimiter="\t" if _suffix(file) == ".tsv" else ",", strict=True)
        read = 0  # number of lines in the rows so far
        try:
            names = next(reader, [])
            if duplicates := sorted({name for name in names if names.count(name) > 1}):
                raise ConfigError(f"{file}, line 1", f"the {duplicates[0]!r} column occurs twice", "Rename a column")
            read = reader.line_num
            for cells in reader:
                place = f"{file}, line {reader.line_num}"
                if cells and len(cells) != len(names):
                    problem = f"{len(cells)} cells, but the first line names {len(names)} columns"
                    raise ConfigError(place, problem, "Quote text with commas or line breaks, and close the quotes")
                if cells:
                    yield Raw(place, dict(zip(names, cells, strict=True)))
                read = reader.line_num
        except csv.Error as error:
            problem = f"the row that begins here is not CSV ({error})"
            remedy = "Quote text with quotes, commas or line breaks, double the quotes in it, and close the quotes"
            raise ConfigError(f"{file}, line {read + 1}", problem, remedy) from error


def _json(file: Path) -> Iterator[Raw]:
    """Yield the objects of a file, which contains one list of objects or one object per line."""
    with _open(file) as raw:
        lines = _decoded(file, raw)
        filled = ((f"{file}, line {number}", line) for number, line in enumerate(lines, 1) if line.strip())
        start, first = next(filled, ("", ""))
        if first.lstrip().startswith("["):
            values = enumerate(_parsed("".join([first, *lines]), str(file)))
            objects = ((f"{file}, row {number}", value) for number, value in values)
        else:
            texts = chain([(start, first)] if first else [], filled)
            objects = ((line, _parsed(text.rstrip(), line)) for line, text in texts)
        for place, value in objects:
            if not isinstance(value, Mapping):
                raise ConfigError(place, f"not a JSON object ({value!r:.60})", "Write {column: value, ...}")
            yield Raw(place, dict(value))


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError) and error.lineno == 1:
            reason = f"{error.msg} at column {error.colno}"
        remedy = "Write one JSON object per line, or one list of objects in a .json file"
        raise ConfigError(place, f"it is not JSON ({reason})", remedy) from error


def _parquet(file: Path) -> Iterator[Raw]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(file) as table:
            for batch in table.iter_batches(1_000):
                for value in batch.to_pylist():
                    yield Raw(f"{file}, row {number}", value)
                    number += 1
    except (pa.ArrowException, OSError) as error:
        where = f"{file}, after row {number - 1}" if number else str(file)
        problem = f"cannot be read as parquet: {str(error).splitlines()[0]}"
        raise ConfigError(where, problem, "Write or download the file again") from error
