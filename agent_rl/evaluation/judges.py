"""How well a judge agrees with the truth: accuracy, error, correlation, calibration, position bias.

A pair is shown in both orders, or each answer of it is scored alone; each order counts as half a pair. A verdict that
cannot be read is wrong; a request that failed is left out, and counted. Position bias is the share of verdicts for the
first answer minus that for the second: 1 for a judge that always takes the first.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter
from statistics import fmean
from typing import Any

from rich.table import Table

from agent_rl.concurrency import together
from agent_rl.data.preferences import to_row
from agent_rl.data.sources import read_raw
from agent_rl.data.storage import unpacked
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.evaluation.judge_sources import JudgeSource
from agent_rl.evaluation.summary import cell, estimate_mean, estimate_rate
from agent_rl.reasoning_rm.metrics import pearson, spearman
from agent_rl.reasoning_rm.sample import DataSample
from agent_rl.rewards.judge.verdict import POINTS, SWAPPED, VerdictError

__all__ = ["JudgeReport", "Judged", "judge_all", "judge_table", "read_samples", "report_on"]

CATEGORIES = ("subset", "source", "category")
"""Keys of a sample's metadata by which benchmarks report."""
BINS = 10
"""Of the calibration: verdicts with as many different scores or more are put into so many groups of equal size."""


def read_samples(paths: Iterable[str], *, score: str = "helpfulness", limit: int | None = None) -> list[DataSample]:
    """The samples of files: rows, or examples in any form that `agent_rl.data.preferences` reads.

    Args:
        paths: CSV, JSON, JSON lines or parquet.
        score: the rating of a row that is the truth of one answer.
        limit: of the first samples of each file.

    Raises:
        ConfigError: for the first that cannot be read, or has no truth, with file and line.
    """
    found: list[DataSample] = []
    for path in paths:
        for number, raw in enumerate(read_raw(path)):
            if limit is not None and number >= limit:
                break
            try:
                row = unpacked(raw.value)
                if "extra_info" not in row:
                    row = to_row(row, "test", number, data_source=str(path))
                sample = DataSample.from_row(row, score=score)
                if sample.truth is None:
                    raise ConfigError("truth", "there is neither a score nor a preference", "Leave it out")
            except ConfigError as error:
                raise ConfigError(f"{raw.place}, {error.key}", error.problem, error.remedy) from error
            found.append(sample)
    return found


@dataclass
class Judged:
    """A sample with its verdicts; None: unreadable."""

    sample: DataSample
    said: list[float | str | None] = field(default_factory=list)
    """One score; the scores of A and B; or the winners in both orders, the second as was said of the swapped pair."""
    failed: str = ""
    """Why there is no reply."""


async def judge_all(
    source: JudgeSource,
    samples: Sequence[DataSample],
    *,
    at_once: int = 32,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Judged]:
    """Have every sample judged.

    Args:
        source: the judge.
        samples: with answers that it can judge.
        at_once: samples at one time.
        advance: called after each sample.

    Raises:
        ConfigError: the judge cannot be asked, or compares and there is no pair.
        UnscoredError: it answered nothing at all.
    """
    free = asyncio.Semaphore(at_once)

    async def work(sample: DataSample) -> Judged:
        async with free:
            judged = await _judged(source, sample)
            advance(1)
            return judged

    judged = await together(list(map(work, samples)))
    if judged and all(each.failed for each in judged):
        raise UnscoredError(f"the judge answered nothing: {judged[0].failed}")
    return judged


async def _judged(source: JudgeSource, sample: DataSample) -> Judged:
    if source.compares:
        if len(sample.answers) != 2:
            problem = f"a sample has {len(sample.answers)} answers, and the template compares two"
            raise ConfigError("--template", problem, "Use a pointwise template")
        asked = [sample, sample.swapped()]
    else:
        alone = {"scores": None, "preference": None}
        asked = [sample.model_copy(update={"answers": [answer], **alone}) for answer in sample.answers]
    judged = Judged(sample)
    for verdict in await asyncio.gather(*map(source.judge, asked), return_exceptions=True):
        if isinstance(verdict, UnscoredError):
            judged.failed = str(verdict)
        elif isinstance(verdict, BaseException) and not isinstance(verdict, VerdictError):
            raise verdict
        judged.said.append(None if isinstance(verdict, BaseException) else verdict)
    return judged


@dataclass
class JudgeReport:
    """The agreement of a judge with the truth; a number that is not defined is None."""

    samples: int
    failed: int
    """Samples without a reply, which count for nothing."""
    unparsable: float | None
    """Share of the verdicts that could not be read."""
    accuracy: dict[str, Any] | None = None
    """Of pairs: the right winner; of scores: the right one, rounded. With its interval."""
    categories: dict[str, float] = field(default_factory=dict)
    """Accuracy by category of a benchmark."""
    mean_of_categories: float | None = None
    mae: float | None = None
    pearson: float | None = None
    spearman: float | None = None
    position_bias: float | None = None
    consistent: float | None = None
    """Share of the pairs whose winner is the same in both orders."""
    ties: float | None = None
    calibration: list[dict[str, float]] = field(default_factory=list)
    """Groups of verdicts with similar scores: the mean, the mean true score with its interval, and how many."""


def report_on(judged: Sequence[Judged]) -> JudgeReport:
    """The agreement over judged samples."""
    answered = [each for each in judged if not each.failed]
    said = [verdict for each in answered for verdict in each.said]
    found = JudgeReport(
        samples=len(judged),
        failed=len(judged) - len(answered),
        unparsable=fmean(float(verdict is None) for verdict in said) if said else None,
    )
    right = [(each, _right(each)) for each in answered]
    rates = [rate for _, rate in right if rate is not None]
    found.accuracy = estimate_rate([[rate] for rate in rates]).plain() if rates else None
    by: dict[str, list[float]] = defaultdict(list)
    for each, rate in right:
        name = next((each.sample.metadata[key] for key in CATEGORIES if key in each.sample.metadata), None)
        if name is not None and rate is not None:
            by[str(name)].append(rate)
    found.categories = {name: fmean(values) for name, values in sorted(by.items())}
    found.mean_of_categories = fmean(found.categories.values()) if by else None
    _add_scores(found, answered)
    _add_orders(found, answered)
    return found


def _right(judged: Judged) -> float | None:
    """How right the verdicts on a sample are, from 0 to 1; None where its truth is of another kind."""
    sample, said = judged.sample, judged.said
    if sample.preference is None:
        if len(said) != 1 or not sample.scores:
            return None
        true = sample.scores[0]
        return float(isinstance(said[0], float) and _rounded(said[0]) == _rounded(true))
    if any(isinstance(verdict, str) for verdict in said) or said == [None, None]:
        orders = [sample.preference, SWAPPED[sample.preference]]
        return fmean(float(verdict == true) for verdict, true in zip(said, orders, strict=True))
    one, other = (each if isinstance(each, float) else None for each in said)
    if one is None or other is None:
        return 0.0
    points = 1.0 if one > other else 0.0 if one < other else 0.5
    return 1.0 - abs(points - POINTS[sample.preference]) if sample.preference != "tie" else float(points == 0.5)


def _add_scores(found: JudgeReport, judged: Sequence[Judged]) -> None:
    """Errors, correlations and calibration of scores whose true ones are known."""
    pairs = [
        (verdict, true)
        for each in judged
        for verdict, true in zip(each.said, each.sample.scores or (), strict=False)
        if isinstance(verdict, float)
    ]
    if not pairs:
        return
    predicted, true = (list(column) for column in zip(*pairs, strict=True))
    found.mae = fmean(abs(one - other) for one, other in pairs)
    found.pearson, found.spearman = pearson(predicted, true), spearman(predicted, true)
    for group in _groups(sorted(pairs)):
        estimate = estimate_mean([[other] for _, other in group])
        low, high = (estimate.mean if end is None else end for end in (estimate.low, estimate.high))
        found.calibration.append(
            {"predicted": fmean(one for one, _ in group), "true": estimate.mean, "low": low, "high": high,
             "count": len(group)}
        )  # fmt: skip


def _groups(pairs: Sequence[tuple[float, float]]) -> Iterator[Sequence[tuple[float, float]]]:
    groups = [list(group) for _, group in groupby(pairs, key=itemgetter(0))]
    if len(groups) >= BINS:
        ends = [len(pairs) * number // BINS for number in range(BINS + 1)]
        groups = [list(pairs[start:end]) for start, end in pairwise(ends)]
    return filter(None, groups)


def _add_orders(found: JudgeReport, judged: Sequence[Judged]) -> None:
    """Position bias, consistency and ties of verdicts on pairs in both orders."""
    compared = [each.said for each in judged if any(isinstance(verdict, str) for verdict in each.said)]
    said = [verdict for each in compared for verdict in each if verdict is not None]
    if not said:
        return
    found.position_bias = (said.count("A") - said.count("B")) / len(said)
    found.ties = said.count("tie") / len(said)
    both = [each for each in compared if None not in each]
    found.consistent = fmean(float(one == SWAPPED[str(other)]) for one, other in both) if both else None


def judge_table(report: JudgeReport, title: str) -> Table:
    """The report for a terminal."""
    table = Table(title=title, title_justify="left", show_header=False)
    numbers = {"mae": report.mae, "pearson": report.pearson, "spearman": report.spearman,
               "position bias": report.position_bias, "consistent": report.consistent, "ties": report.ties,
               "unparsable": report.unparsable, "mean of categories": report.mean_of_categories}  # fmt: skip
    table.add_row("accuracy", cell(report.accuracy))
    for name, value in numbers.items():
        if value is not None:
            table.add_row(name, f"{value:.3f}")
    for name, value in report.categories.items():
        table.add_row(f"  {name}", f"{value:.3f}")
    table.add_row("samples", f"{report.samples:,}")
    if report.failed:
        table.add_row("without a reply", f"{report.failed:,}")
    return table


def _rounded(score: float) -> int:
    return math.floor(score + 0.5)
