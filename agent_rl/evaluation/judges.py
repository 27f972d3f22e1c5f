"""How well a judge agrees with the truth: accuracy, error, correlation, position bias.

A judge is a chat endpoint with a prompt template, a reward model, or a function of your own. A pair is shown in both
orders, or each answer of it is scored alone; each order counts as half a pair. A verdict that cannot be read is wrong;
a request that failed is left out, and counted. Position bias is the share of verdicts for the first answer minus that
for the second: 1 for a judge that always takes the first.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from rich.table import Table

from agent_rl.data.preferences import to_row
from agent_rl.data.sources import read_raw
from agent_rl.data.storage import unpacked
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.evaluation.summary import cell
from agent_rl.reasoning_rm.reward_module import RewardModule
from agent_rl.reasoning_rm.sample import DataSample
from agent_rl.remote import ChatClient, EndpointConfig
from agent_rl.rewards.judge.kinds import chat_thinks
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate
from agent_rl.rewards.judge.verdict import POINTS, SWAPPED, VerdictError, pair_form
from agent_rl.rewards.models.model import Model, ModelConfig
from agent_rl.trajectory import Message, StopReason, Trajectory, Turn
from agent_rl.trajectory.estimates import estimate_rate
from agent_rl.work.concurrency import together

__all__ = [
    "JudgeReport",
    "JudgeSource",
    "Judged",
    "classifier_judge",
    "correlation",
    "judge_all",
    "judge_table",
    "read_samples",
    "report_on",
    "template_judge",
]

CATEGORIES = ("subset", "source", "category")
"""Keys of a sample's metadata by which benchmarks report."""


@dataclass(frozen=True)
class JudgeSource:
    """Judges samples.

    Attributes:
        judge: gives the score of a sample's only answer, or `A`, `B` or `tie` for a pair; it raises a VerdictError
            where the reply has no verdict, and an UnscoredError where there is no reply.
        compares: whether it compares the answers of a pair; otherwise it scores one answer at a time.
    """

    judge: Callable[[DataSample], Awaitable[float | str]]
    compares: bool = False


def template_judge(
    endpoint: EndpointConfig, template: type[BasePromptTemplate], body: Mapping[str, Any] | None = None
) -> JudgeSource:
    """A generative model at a chat endpoint, asked by a prompt template.

    Args:
        endpoint: its address and name.
        template: its verdict has the field `score` or `preference`.
        body: further fields of the request.

    Raises:
        ConfigError: the API key is missing.
    """
    body, client = dict(body or {}), ChatClient(endpoint)
    module = RewardModule("rm eval", template, enable_thinking=not chat_thinks(body))
    compares = module.kind == "pairwise"

    async def judge(sample: DataSample) -> float | str:
        messages = [{"role": "user", "content": module.format(sample)}]
        async with client:
            completion = await client.chat({"messages": messages, **body})
        verdict: Any = module.parse(completion.text, sample)
        return str(pair_form().of(verdict).winner) if compares else float(verdict.score)

    return JudgeSource(judge, compares)


def classifier_judge(config: ModelConfig) -> JudgeSource:
    """A discriminative reward model, with the keys of the component `reward_model`.

    Raises:
        ConfigError: see `Model`.
    """
    model = Model("model", "rm eval", config)

    async def judge(sample: DataSample) -> float:
        asked = f"{sample.context}\n\n{sample.query}" if sample.context else sample.query
        (answer,) = sample.answers
        trajectory = Trajectory([Message("user", asked)], StopReason.ANSWERED, turns=[Turn(answer)], answer=answer)
        score, _ = await model.score(trajectory)
        return score

    return JudgeSource(judge)


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
    judge: JudgeSource,
    samples: Sequence[DataSample],
    *,
    at_once: int = 32,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Judged]:
    """Have every sample judged.

    Args:
        judge: the judge.
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
            judged = await _judged(judge, sample)
            advance(1)
            return judged

    judged = await together(list(map(work, samples)))
    if judged and all(each.failed for each in judged):
        raise UnscoredError(f"the judge answered nothing: {judged[0].failed}")
    return judged


async def _judged(judge: JudgeSource, sample: DataSample) -> Judged:
    if judge.compares:
        if len(sample.answers) != 2:
            problem = f"a sample has {len(sample.answers)} answers, and the template compares two"
            raise ConfigError("--template", problem, "Use a pointwise template")
        asked = [sample, sample.swapped()]
    else:
        alone = {"scores": None, "preference": None}
        asked = [sample.model_copy(update={"answers": [answer], **alone}) for answer in sample.answers]
    judged = Judged(sample)
    for verdict in await asyncio.gather(*map(judge.judge, asked), return_exceptions=True):
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
    accuracy: dict[str, Any] | None
    """Of pairs: the right winner; of scores: the right one, rounded. With its interval."""
    categories: dict[str, float]
    """Accuracy by category of a benchmark."""
    mean_of_categories: float | None
    mae: float | None
    pearson: float | None
    spearman: float | None
    position_bias: float | None
    consistent: float | None
    """Share of the pairs whose winner is the same in both orders."""
    ties: float | None


def report_on(judged: Sequence[Judged]) -> JudgeReport:
    """The agreement over judged samples."""
    answered = [each for each in judged if not each.failed]
    rates: list[float] = []
    categories: dict[str, list[float]] = defaultdict(list)
    for each in answered:
        if (rate := _right(each)) is not None:
            rates.append(rate)
            name = next((each.sample.metadata[key] for key in CATEGORIES if key in each.sample.metadata), None)
            if name is not None:
                categories[str(name)].append(rate)
    means = {name: fmean(values) for name, values in sorted(categories.items())}
    scores = [
        (verdict, true)
        for each in answered
        for verdict, true in zip(each.said, each.sample.scores or (), strict=False)
        if isinstance(verdict, float)
    ]
    predicted, truth = [verdict for verdict, _ in scores], [true for _, true in scores]
    compared = [each.said for each in answered if any(isinstance(verdict, str) for verdict in each.said)]
    winners = [verdict for said in compared for verdict in said if verdict is not None]
    return JudgeReport(
        samples=len(judged),
        failed=len(judged) - len(answered),
        unparsable=_mean(verdict is None for each in answered for verdict in each.said),
        accuracy=estimate_rate([[rate] for rate in rates]).plain() if rates else None,
        categories=means,
        mean_of_categories=_mean(means.values()),
        mae=_mean(abs(verdict - true) for verdict, true in scores),
        pearson=correlation(predicted, truth),
        spearman=correlation(predicted, truth, "spearman"),
        position_bias=_mean((winner == "A") - (winner == "B") for winner in winners),
        consistent=_mean(one == SWAPPED[str(other)] for one, other in compared if None not in (one, other)),
        ties=_mean(winner == "tie" for winner in winners),
    )


def correlation(
    one: Sequence[float], other: Sequence[float], method: Literal["pearson", "spearman"] = "pearson"
) -> float | None:
    """The correlation of two lists or, by `spearman`, of their ranks; None where it is not defined."""
    import pandas as pd

    found = float(pd.DataFrame({"one": one, "other": other}, dtype=float).corr(method)["one"]["other"])
    return None if math.isnan(found) else found


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return fmean(numbers) if numbers else None


def _right(judged: Judged) -> float | None:
    """How right the verdicts on a sample are, from 0 to 1; None where its truth is of another kind."""
    sample, said = judged.sample, judged.said
    if sample.preference is None:
        if len(said) != 1 or not sample.scores:
            return None
        return float(isinstance(said[0], float) and _rounded(said[0]) == _rounded(sample.scores[0]))
    if any(isinstance(verdict, str) for verdict in said) or said == [None, None]:
        orders = [sample.preference, SWAPPED[sample.preference]]
        return fmean(float(verdict == true) for verdict, true in zip(said, orders, strict=True))
    one, other = said
    if not isinstance(one, float) or not isinstance(other, float):
        return 0.0
    points = 1.0 if one > other else 0.0 if one < other else 0.5
    return 1.0 - abs(points - POINTS[sample.preference]) if sample.preference != "tie" else float(points == 0.5)


def _rounded(score: float) -> int:
    return math.floor(score + 0.5)


def judge_table(report: JudgeReport, title: str) -> Table:
    """The report for a terminal."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_row("accuracy", cell(report.accuracy))
    numbers = {"mae": report.mae, "pearson": report.pearson, "spearman": report.spearman,
               "position bias": report.position_bias, "consistent": report.consistent, "ties": report.ties,
               "unparsable": report.unparsable, "mean of categories": report.mean_of_categories,
               **{f"  {name}": value for name, value in report.categories.items()}}  # fmt: skip
    for name, value in numbers.items():
        if value is not None:
            table.add_row(name, f"{value:.3f}")
    table.add_row("samples", f"{report.samples:,}")
    if report.failed:
        table.add_row("without a reply", f"{report.failed:,}")
    return table
