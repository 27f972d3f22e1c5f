"""The share of the draws that each data source has, from weights or a temperature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from agent_rl.errors import ConfigError, did_you_mean

__all__ = ["shares"]


def shares(
    counts: Mapping[str, int],
    weights: Mapping[str, float] | Sequence[float],
    temperature: float | None,
    files: Sequence[tuple[str, Sequence[str]]],
    key: str,
) -> list[float]:
    """The share of each source, in the order of `counts`; they sum to 1.

    Args:
        counts: rows of each source.
        weights: by pattern of the source's name, of which the one with the most literal characters counts, or one for
            each file; empty: by temperature.
        temperature: shares are proportional to rows^(1/temperature); None: 1.
        files: path and sources of each file.
        key: of the weights, for errors.

    Raises:
        ConfigError: a source or a file has no weight, or a weight no source.
    """
    if not weights:
        found = [count ** (1 / (temperature or 1.0)) for count in counts.values()]
    elif isinstance(weights, Mapping):
        found = _by_pattern(weights, list(counts), key)
    else:
        found = _by_file(weights, files, counts, key)
    if (whole := sum(found)) <= 0:
        raise ConfigError(key, "no source has a weight above 0", "Give one to the sources that are to be drawn")
    return [each / whole for each in found]


def _by_pattern(weights: Mapping[str, float], names: Sequence[str], key: str) -> list[float]:
    for pattern in weights:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"{key}.{pattern}", "no row has this data_source", did_you_mean(pattern, names))
    found = []
    for name in names:
        fitting = [pattern for pattern in weights if pattern == name or fnmatchcase(name, pattern)]
        if not fitting:
            problem = f"the data source {name!r} has no weight"
            raise ConfigError(key, problem, f"Write {name!r}: WEIGHT below it; 0 leaves the rows out")
        found.append(weights[max(fitting, key=lambda each: (each == name, sum(c not in "*?[]" for c in each)))])
    return found


def _by_file(
    weights: Sequence[float],
    files: Sequence[tuple[str, Sequence[str]]],
    counts: Mapping[str, int],
    key: str,
) -> list[float]:
    """A file's sources share its weight as they have rows."""
    remedy = "Write the weights by data source: {SOURCE: WEIGHT, ...}"
    if len(weights) != len(files):
        problem = f"there are {len(weights)} weights for {len(files)} data.train_files"
        raise ConfigError(key, problem, f"Give each file one. {remedy}")
    found: dict[str, float] = {}
    file_of: dict[str, str] = {}
    for weight, (path, sources) in zip(weights, files, strict=True):
        own = [source for source in sources if source in counts]  # verl may have left rows out
        whole = sum(counts[source] for source in own)
        for source in own:
            if source in file_of:
                raise ConfigError(key, f"{file_of[source]} and {path} both have rows of {source!r}", remedy)
            file_of[source] = path
            found[source] = weight * counts[source] / whole
    return [found[source] for source in counts]
