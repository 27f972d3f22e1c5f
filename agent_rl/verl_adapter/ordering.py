"""Lets `agent_rl.data` decide which row verl's trainer draws next, and reports rewards to the row order.

verl 0.9.1 has no hook for the order of rows: its sampler is random or sequential, and only the old trainer calls
`on_batch_end` of a data set. The trainer gets another data loader over the same data set; its sampler never ends, and
its state is saved and loaded with verl's `data.pt`. A column contains each row's number, which the agent loops store
with each trajectory. After each step, in all modes, the order gets the success rates of the step's rows. Groups that
the replay buffer removes (equal rewards, too old, too many) are reported with the step in which they were removed.

If no key of `agent_rl.data` is set, this module changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_rl.data.order import RowFacts, RowOrder
from agent_rl.data.storage import unpacked
from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings import SECTION, AgentRLSettings, DataSettings
from agent_rl.verl_adapter.trained_samples import finals, reported

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

ROW = "agent_rl_row"
"""Column with the row's number in the order of the files."""
COMPARED = 1_000
"""Number of prompts, spread evenly over the files, by which a checkpoint's rows are identified."""
SCORE = "score"
"""The value of `agent_rl.data.measure` that stands for the reward."""


class RunOrder:
    """Draws a trainer's rows in order, receives the rows' rewards, and computes metrics.

    Args:
        config: verl's whole configuration.
        settings: the configuration's `agent_rl` section.
        dataset: the training rows, an `RLHFDataset` or the user's subclass.

    Raises:
        ConfigError: the `agent_rl.data` section does not fit the rows.
    """

    def __init__(self, config: Any, settings: AgentRLSettings, dataset: Any) -> None:
        self.settings = _settings(config, settings)
        seed = config.data.get("seed")
        self.order = RowOrder(_facts(dataset, self.settings), self.settings, 0 if seed is None else seed)
        self.dataset = _NumberedRows(dataset)
        self.removed: list[tuple[int, float]] = []
        """A (row, success rate) pair for each group that the replay buffer has removed since the last step."""
        self.scores_in_time = True
        """Whether rewards are known when the replay buffer removes groups."""

    def loader(self, verls: Any) -> Any:
        """Return a data loader that draws rows in this order, to replace verl's."""
        draws, size = Draws(self.order), verls.batch_size
        return type(verls)(
            dataset=self.dataset, batch_size=size, drop_last=True, collate_fn=verls.collate_fn, sampler=draws
        )

    def visits(self, keys: Sequence[str], partition_id: str) -> list[tuple[int, float]]:
        """Return a (row, success rate) pair for each group of samples.

        Args:
            keys: `{uid}_{session}_{index}` of trajectories.
            partition_id: the partition of these trajectories in TransferQueue.

        Raises:
            ConfigError: the reward does not report the number that `agent_rl.data.measure` names.
        """
        if not keys:
            return []
        import transfer_queue as tq

        infos = [] if self.settings.measure == SCORE else reported(keys, partition_id)
        keys = finals(keys)
        data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=[ROW, "rm_scores"])
        scores = [float(each.sum()) for each in data["rm_scores"].unbind()]
        rows: dict[str, int] = {}
        by_group: dict[str, list[float]] = defaultdict(list)
        for key, row, value in zip(keys, data[ROW], _measured(self.settings.measure, scores, infos), strict=True):
            uid = key.split("_")[0]
            rows[uid] = int(getattr(row, "data", row))
            by_group[uid].append(value)
        return [(rows[uid], math.fsum(sorted(values)) / len(values)) for uid, values in by_group.items()]

    def report_step(self, step: int, keys: Sequence[str], partition_id: str) -> dict[str, float]:
        """Report the groups of a step's batch and the groups removed since the last step; return the step's metrics."""
        visits = [*self.visits(keys, partition_id), *self.removed]
        self.removed = []
        self.order.report(step, visits)
        return self.metrics(visits)

    def metrics(self, visits: Iterable[tuple[int, float]]) -> dict[str, float]:
        """Return a step's metrics: the order's metrics, and the share and success rate of each source."""
        rates: dict[str, list[float]] = defaultdict(list)
        for row, rate in visits:
            rates[self.order.names[int(self.order.sources[row])]].append(rate)
        count = sum(map(len, rates.values()))
        metrics = self.order.metrics()
        for name, hits in sorted(rates.items()):
            metrics |= {f"data/share/{name}": len(hits) / count, f"data/success/{name}": math.fsum(hits) / len(hits)}
        return metrics


class _NumberedRows:
    """A data set whose rows contain their numbers."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {**self._dataset[row], ROW: row}


class Draws:
    """A data loader's sampler whose iterators continue at the order's position; torchdata saves the order's state."""

    def __init__(self, order: RowOrder) -> None:
        self._order = order

    def __iter__(self) -> Iterator[int]:
        return _Draws(self._order)


class _Draws(Iterator[int]):
    def __init__(self, order: RowOrder) -> None:
        self._order = order

    def __next__(self) -> int:
        return self._order.next()

    def state_dict(self) -> dict[str, Any]:
        return self._order.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._order.load(state)


def check(config: Any, settings: AgentRLSettings) -> None:
    """Check the `agent_rl.data` section against the files on this machine, before Ray starts.

    Raises: ConfigError: the section does not fit the rows.
    """
    data = _settings(config, settings)
    files, is_ours = config.data.train_files, config.data.custom_cls.name in (None, "RowDataSet")
    paths = [os.path.expanduser(str(each)) for each in ([files] if isinstance(files, str) else files or [])]
    if data.is_set and is_ours and paths and all(os.path.isfile(path) for path in paths):
        rows = SimpleNamespace(data_files=paths, original_data_files=paths, prompt_key=config.data.prompt_key)
        rows.dataframe = _read_frame(paths)
        RowOrder(_facts(rows, data), data)


def require_verls(state: Mapping[str, Any] | None) -> None:
    """Reject an order's state that would be loaded into verl's sampler and cause an unclear error there."""
    sampler = ((state or {}).get("_sampler_iter_state") or {}).get("sampler_iter_state") or {}
    if "progress" in sampler:
        problem = "the checkpoint was saved with an order from agent_rl.data, but none of its keys is set now"
        raise ConfigError(f"{SECTION}.data", problem, "Set a key, or start again with trainer.resume_mode=disable")


def _settings(config: Any, whole: AgentRLSettings) -> DataSettings:
    """Return the `agent_rl.data` section; if the section sets no order, `data.shuffle=false` means `order: file`."""
    settings = whole.data
    if not settings.is_set or settings.order is not None or config.data.get("shuffle", True):
        return settings
    return settings.model_copy(update={"order": "file"})


def _measured(measure: str | None, scores: list[float], infos: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return each trajectory's value, from which the success rates are computed."""
    if measure == SCORE:
        return scores
    if measure is None:  # data sources whose answers are not scored report no `acc`
        own: list[Any] = [info.get("acc") for info in infos]
        return [float(acc) if _is_number(acc) else score for acc, score in zip(own, scores, strict=True)]
    if missing := [info for info in infos if not _is_number(info.get(measure))]:
        names = [name for name, value in missing[0].items() if _is_number(value)]
        problem = f"the reward does not report a number {measure!r}"
        raise ConfigError(f"{SECTION}.data.measure", problem, did_you_mean(measure, [*names, SCORE]))
    return [float(info[measure]) for info in infos]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number)


def _facts(dataset: Any, settings: DataSettings) -> RowFacts:
    """Return the properties of verl's data set that the order needs.

    Raises:
        ConfigError: the data set is not verl's, or has no `data_source` column.
    """
    frame: Any = getattr(dataset, "dataframe", None)
    columns = getattr(frame, "column_names", None)
    if columns is None:
        problem = f"{type(dataset).__name__} has no table of rows for agent_rl.data to order"
        raise ConfigError("data.custom_cls", problem, "Derive it from RLHFDataset, or remove the agent_rl.data section")
    if "data_source" not in columns:
        raise ConfigError(
            "data.train_files", "there is no data_source column", "Build rows with agent_rl.data.make_row"
        )
    sources = _column(frame, "data_source").to_pylist()
    difficulties: list[float | None] = [None] * len(sources)
    if settings.order == "difficulty" or any(stage.difficulty for stage in settings.stages):
        infos = _column(frame, "extra_info").to_pylist() if "extra_info" in columns else difficulties
        rows = zip(infos, sources, strict=True)
        difficulties = [_difficulty(unpacked({"extra_info": info, "data_source": name})) for info, name in rows]
    some = np.linspace(0, len(sources) - 1, min(len(sources), COMPARED), dtype=np.int64)
    name = next(name for name in (dataset.prompt_key, *columns) if name in columns)
    prompts = _column(frame.select(some), name).to_pylist()
    digest = hashlib.blake2b(json.dumps([sources, prompts], default=str).encode(), digest_size=16).hexdigest()
    names = [str(path) for path in dataset.original_data_files]
    by_file = any(isinstance(each, list) for each in (settings.weights, *(s.weights for s in settings.stages)))
    files = [
        (name, sorted(_read_frame([path]).unique("data_source")) if by_file else [])
        for name, path in zip(names, dataset.data_files, strict=True)
    ]
    return RowFacts(sources, difficulties, files, digest)


def _difficulty(row: Mapping[str, Any]) -> float | None:
    """Return the `extra_info.difficulty` of a row, or None.

    Raises:
        ConfigError: the value is not a number.
    """
    info = row.get("extra_info")
    value = info.get("difficulty") if isinstance(info, Mapping) else None
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    problem = f"expected a number, got {value!r} (data_source {row.get('data_source')!r})"
    raise ConfigError("extra_info.difficulty", problem, "Write numbers there")


def _read_frame(paths: Iterable[str]) -> datasets.Dataset:
    """Read the rows of these files as verl does."""
    import datasets

    def read(path: str) -> datasets.Dataset:
        kind = "parquet" if path.endswith(".parquet") else "json"
        return datasets.load_dataset(kind, data_files=path)["train"]

    return datasets.concatenate_datasets([read(path) for path in paths])


def _column(frame: Any, name: str) -> pa.ChunkedArray:
    """Return a column of a `datasets.Dataset` in its stored form."""
    column: pa.ChunkedArray = frame.select_columns([name]).with_format("arrow")[:].column(name)
    return column
