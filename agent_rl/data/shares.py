"""Computes the shares of data sources in a training run from weights or from a temperature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from agent_rl.errors import ConfigError, did_you_mean


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
        weights: a weight for each pattern of source names (of several matching patterns, the one with the most literal
            characters applies), or a weight for each file; if empty, the temperature decides.
        temperature: shares are proportional to rows^(1/temperature); None means 1.
        files: for each file, its path and its sources.
        key: configuration key of the weights, for error messages.

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
        raise ConfigError(key, "no source has a weight above 0", "Set a weight for every source to draw from")
    return [value / total for value in values]


def _by_pattern(weights: Mapping[str, float], names: Sequence[str], key: str) -> list[float]:
    for pattern in weights:
        if not any(name == pattern or fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"{key}.{pattern}", "no row has this data_source", did_you_mean(pattern, names))
    values = []
    for name in names:
        matches = [pattern for pattern in weights if pattern == name or fnmatchcase(name, pattern)]
        if not matches:
            problem = f"the data source {name!r} has no weight"
            raise ConfigError(key, problem, f"Add {name!r}: WEIGHT to this key; 0 skips its rows")
        values.append(weights[max(matches, key=lambda text: (text == name, sum(c not in "*?[]" for c in text)))])
    return values


def _by_file(
    weights: Sequence[float],
    files: Sequence[tuple[str, Sequence[str]]],
    counts: Mapping[str, int],
    key: str,
) -> list[float]:
    """Return each source's weight: the sources in a file share the file's weight in proportion to their rows."""
    remedy = "Write the weights by data source: {SOURCE: WEIGHT, ...}"
    if len(weights) != len(files):
        problem = f"there are {len(weights)} weights for {len(files)} data.train_files"
        raise ConfigError(key, problem, f"Give each file one weight. {remedy}")
    values: dict[str, float] = {}
    file_of: dict[str, str] = {}
    for weight, (path, sources) in zip(weights, files, strict=True):
        own = [source for source in sources if source in counts]  # verl may have filtered out all rows of a source
        total = sum(counts[source] for source in own)
        for source in own:
            if source in file_of:
                raise ConfigError(key, f"{file_of[source]} and {path} both have rows of {source!r}", remedy)
            file_of[source] = path
            values[source] = weight * counts[source] / total
    return [values[source] for source in counts]
