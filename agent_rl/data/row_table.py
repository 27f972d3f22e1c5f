"""The facts about rows that a training run's order uses: sources, shares, difficulties and success rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings.data import DataSettings

__all__ = ["RowFacts", "RowTable", "difficulty_of", "shares"]

NEWEST = 0.5
"""Weight of a row's latest visit in its success rate; the first visit sets the rate."""

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RowFacts:
    """The facts about the rows of the files, in order.

    Attributes:
        sources: `data_source` of each row.
        difficulties: `extra_info.difficulty` of each row, or None.
        files: path of each of `data.train_files`, with the data sources in it.
        digest: digest of the rows' content; a state with another digest is rejected.
    """

    sources: Sequence[str]
    difficulties: Sequence[float | None]
    files: Sequence[tuple[str, Sequence[str]]] = ()
    digest: str = ""


def difficulty_of(row: Mapping[str, Any]) -> float | None:
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


class RowTable:
    """The rows of the files by number, and their success rates.

    Args:
        rows: the rows of the files.
        settings: the settings that define the band and the dropped rows.

    Attributes:
        names: sorted names of the sources.
        sources: position in `names` of each row's source.
        difficulties: difficulty of each row, or NaN.
    """

    def __init__(self, rows: RowFacts, settings: DataSettings) -> None:
        if not rows.sources:
            raise ConfigError("data.train_files", "there are no rows", "Use files that have rows")
        self._rows, self._settings = rows, settings
        names, codes = np.unique(rows.sources, return_inverse=True)
        self.names: list[str] = names.tolist()
        self.sources: Numbers = codes.astype(np.int64)
        self.difficulties = np.array(rows.difficulties, dtype=np.float64)
        self._rates = np.full(len(codes), math.nan, dtype=np.float64)
        self._streaks = np.zeros(len(codes), dtype=np.int64)

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows by source."""
        return dict(zip(self.names, np.bincount(self.sources).tolist(), strict=True))

    def members(self, code: int) -> Numbers:
        """Return the rows of the source with this position in `names`."""
        return np.flatnonzero(self.sources == code)

    def in_range(self, rows: Numbers, bounds: tuple[float, float] | None) -> Mask:
        """Return which of the rows have a difficulty in the range; if the range is None, all rows."""
        if bounds is None:
            return np.ones(len(rows), dtype=np.bool_)
        found: Mask = (self.difficulties[rows] >= bounds[0]) & (self.difficulties[rows] <= bounds[1])
        return found

    def is_dropped(self, rows: Numbers) -> Mask:
        """Return which of the rows were solved, or hopeless, on too many consecutive visits."""
        drop, streaks = self._settings.drop, self._streaks[rows]
        found: Mask = np.zeros(len(rows), dtype=np.bool_)
        if drop is not None and drop.solved_after is not None:
            found |= streaks >= drop.solved_after
        if drop is not None and drop.hopeless_after is not None:
            found |= streaks <= -drop.hopeless_after
        return found

    def is_in_band(self, rows: Numbers) -> Mask:
        """Return which of the rows have a success rate in the band, or no known rate."""
        band, rates = self._settings.band, self._rates[rows]
        found: Mask = np.isnan(rates)
        return found if band is None else found | ((rates >= band.low) & (rates <= band.high))

    def count(self, row: int, rate: float) -> None:
        """Record a visit to a row with its success rate."""
        known, streak = self._rates[row], self._streaks[row]
        self._rates[row] = rate if math.isnan(known) else (1 - NEWEST) * known + NEWEST * rate
        if (drop := self._settings.drop) is not None:
            solved, hopeless = rate >= drop.solved_from, rate <= drop.hopeless_to
            self._streaks[row] = max(streak, 0) + 1 if solved else min(streak, 0) - 1 if hopeless else 0

    def metrics(self) -> dict[str, float]:
        """Return the metrics to log: the numbers of rows, of visited rows, and so on."""
        rows, known = np.arange(len(self.sources)), ~np.isnan(self._rates)
        counts = {"rows": len(rows), "visited": known.sum()}
        if self._settings.drop is not None:
            counts["dropped"] = self.is_dropped(rows).sum()
        if self._settings.band is not None:
            counts["in_band"] = (self.is_in_band(rows) & known).sum()
        return {name: float(value) for name, value in counts.items()}

    def state(self) -> dict[str, Any]:
        """Return an independent copy of the state as plain data, for `load`."""
        return {
            "files": [path for path, _ in self._rows.files],
            "count": len(self.sources),
            "digest": self._rows.digest,
            "rates": self._rates.tobytes(),
            "streaks": self._streaks.tobytes(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Load the success rates from the state of another table.

        Raises:
            ConfigError: the state belongs to other rows.
        """
        count = len(self.sources)
        if (state["count"], state["digest"]) != (count, self._rows.digest):
            here = ", ".join(path for path, _ in self._rows.files)
            problem = f"{here}: these {count} rows are not the {state['count']} rows that the checkpoint was saved with"
            remedy = f"Use the files {', '.join(state['files'])}, or start again with trainer.resume_mode=disable"
            raise ConfigError("data.train_files", problem, remedy)
        self._rates = np.frombuffer(state["rates"], dtype=np.float64).copy()
        self._streaks = np.frombuffer(state["streaks"], dtype=np.int64).copy()

    def require_difficulties(self, key: str) -> None:
        """Reject rows without a difficulty.

        Raises:
            ConfigError: a row has no difficulty; the error names the first one.
        """
        missing = np.flatnonzero(np.isnan(self.difficulties))
        if len(missing):
            first = f"first row {missing[0]} ({self._rows.sources[missing[0]]})"
            problem = f"{len(missing)} rows have no extra_info.difficulty, {first}"
            raise ConfigError(key, problem, "Set extra_info.difficulty to a number in every row")


def shares(
    counts: Mapping[str, int],
    weights: Mapping[str, float] | Sequence[float],
    temperature: float | None,
    files: Sequence[tuple[str, Sequence[str]]],
    key: str,
) -> list[float]:
    """Return the share of each source, in the order of `counts`; the shares sum to 1.

    Args:
        counts: number of rows by source.
        weights: weights by pattern of the source's name (the matching pattern with the most literal characters
            applies), or one weight for each file; if empty, the temperature decides.
        temperature: shares are proportional to rows^(1/temperature); None: 1.
        files: path and sources of each file.
        key: key of the weights, for errors.

    Raises:
        ConfigError: a source or a file has no weight, or a weight has no source.
    """
    if not weights:
        values = [count ** (1 / (temperature or 1.0)) for count in counts.values()]
    elif isinstance(weights, Mapping):
        values = _by_pattern(weights, list(counts), key)
    else:
        values = _by_file(weights, files, counts, key)
    if (total := sum(values)) <= 0:
        raise ConfigError(key, "no source has a weight above 0", "Give a weight to each source you want to draw from")
    return [value / total for value in values]


def _by_pattern(weights: Mapping[str, float], names: Sequence[str], key: str) -> list[float]:
    for pattern in weights:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"{key}.{pattern}", "no row has this data_source", did_you_mean(pattern, names))
    values = []
    for name in names:
        matches = [pattern for pattern in weights if pattern == name or fnmatchcase(name, pattern)]
        if not matches:
            problem = f"the data source {name!r} has no weight"
            raise ConfigError(key, problem, f"Add {name!r}: WEIGHT to it; 0 skips its rows")
        values.append(weights[max(matches, key=lambda text: (text == name, sum(c not in "*?[]" for c in text)))])
    return values


def _by_file(
    weights: Sequence[float],
    files: Sequence[tuple[str, Sequence[str]]],
    counts: Mapping[str, int],
    key: str,
) -> list[float]:
    """Return the weight of each source: the sources of a file share its weight in proportion to their rows."""
    remedy = "Write the weights by data source: {SOURCE: WEIGHT, ...}"
    if len(weights) != len(files):
        problem = f"there are {len(weights)} weights for {len(files)} data.train_files"
        raise ConfigError(key, problem, f"Give each file one weight. {remedy}")
    values: dict[str, float] = {}
    file_of: dict[str, str] = {}
    for weight, (path, sources) in zip(weights, files, strict=True):
        own = [source for source in sources if source in counts]  # verl may have filtered rows
        total = sum(counts[source] for source in own)
        for source in own:
            if source in file_of:
                raise ConfigError(key, f"{file_of[source]} and {path} both have rows of {source!r}", remedy)
            file_of[source] = path
            values[source] = weight * counts[source] / total
    return [values[source] for source in counts]
