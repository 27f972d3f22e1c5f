"""GSM8K: grade-school word problems with worked answers, as rows.

An answer of the data set ends in `#### <number>` and carries calculator annotations such as `<<48/2=24>>`. It is kept
whole in `extra_info.answer`; the ground truth is the number alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.data.rows import make_row, read_parquet
from agent_rl.errors import ConfigError

__all__ = ["DATA_SOURCE", "SPLITS", "final_answer", "load_examples", "to_row"]

DATA_SOURCE = "openai/gsm8k"
SPLITS = ("train", "test")


def final_answer(answer_text: str) -> str:
    """The number after the last `####`, without commas.

    Raises:
        ConfigError: there is no such mark, or no number after it.
    """
    _, mark, text = answer_text.rpartition("####")
    number = text.strip().replace(",", "")
    if not mark or not re.fullmatch(r"-?\d+(\.\d+)?", number):
        raise ConfigError("answer", f"no number after '####' in {answer_text[-60:]!r}", "End it in '#### <number>'")
    return number


def to_row(example: Mapping[str, str], split: str, index: int, *, agent_name: str = "react_agent") -> dict[str, Any]:
    """One row from one example with `question` and `answer`.

    Raises:
        ConfigError: naming split, index and what is wrong with the example.
    """
    place = f"{DATA_SOURCE}, {split} row {index}"
    for name in ("question", "answer"):
        if not isinstance(example.get(name), str):
            raise ConfigError(f"{place}, {name}", f"expected text, got {example.get(name)!r}", "Use GSM8K's columns")
    try:
        ground_truth = final_answer(example["answer"])
    except ConfigError as error:
        raise ConfigError(f"{place}, {error.key}", error.problem, error.remedy) from error
    return make_row(
        question=example["question"],
        data_source=DATA_SOURCE,
        ground_truth=ground_truth,
        split=split,
        index=index,
        agent_name=agent_name,
        extra_info={"answer": example["answer"]},
    )


def load_examples(local_path: str | os.PathLike[str] | None = None) -> dict[str, list[dict[str, str]]]:
    """The examples of each split.

    Args:
        local_path: a folder with `train` and `test` as .jsonl or .parquet (also a download of the hub's repository,
            with its folder `main`), or one such file: the split `test` if its name contains "test", else `train`. None:
            the hub.

    Raises:
        ConfigError: the hub cannot be reached, or the path has no such files.
    """
    if local_path is None:
        return _from_hub()
    path = Path(local_path).expanduser()
    if path.is_dir():
        return {split: _read_all(_split_files(path, split)) for split in SPLITS}
    return {"test" if "test" in path.stem else "train": _read_all([path])}


def _from_hub() -> dict[str, list[dict[str, str]]]:
    import datasets

    try:
        data = datasets.load_dataset(DATA_SOURCE, "main")
    except OSError as error:  # ConnectionError and datasets' DatasetNotFoundError are OSErrors
        raise ConfigError(
            DATA_SOURCE,
            f"the data set cannot be loaded from the Hugging Face hub ({error})",
            "Use --local_dataset_path with a folder that has train.jsonl and test.jsonl (or .parquet)",
        ) from error
    return {split: data[split].to_list() for split in SPLITS}


def _split_files(folder: Path, split: str) -> list[Path]:
    """The files of a split: one, or the hub's numbered shards."""
    place = folder / "main" if (folder / "main").is_dir() else folder
    pattern = re.compile(rf"{split}(-\d+-of-\d+)?\.(jsonl|parquet)")
    files = sorted(path for path in place.iterdir() if pattern.fullmatch(path.name))
    if not files:
        raise ConfigError(str(place), f"no {split}.jsonl or {split}.parquet in the folder", "Give GSM8K's folder")
    if len({path.suffix for path in files}) > 1:
        names = ", ".join(path.name for path in files)
        raise ConfigError(str(place), f"both kinds of files hold the split {split} ({names})", "Keep one of them")
    return files


def _read_all(files: list[Path]) -> list[dict[str, str]]:
    return [example for path in files for example in _read(path)]


def _read(path: Path) -> list[dict[str, str]]:
    if path.suffix == ".parquet":
        return read_parquet(path)
    if path.suffix != ".jsonl" or not path.is_file():
        raise ConfigError(str(path), "there is no such .jsonl or .parquet file", "Correct --local_dataset_path")
    examples = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                examples.append(dict(json.loads(line)))
            except (TypeError, ValueError) as error:  # dict() of a value that is not an object
                key, remedy = f"{path}, line {number}", "Write one JSON object a line"
                raise ConfigError(key, f"not a JSON object ({error})", remedy) from error
    return examples
