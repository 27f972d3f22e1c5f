"""Measures how well a judge agrees with the ground truth: accuracy, error, correlation, position bias.

A judge is a chat endpoint with a prompt template, a reward model, or your own function. A judge scores answers one by
one, or compares the answers of a pair in both orders, each with half the weight. An unreadable verdict counts as wrong;
samples without a reply are counted, but otherwise excluded. Position bias is the share of verdicts for the first answer
minus the share for the second: a judge that always prefers the first answer has a position bias of 1.
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
from rich.text import Text

from agent_rl.data.preferences import to_row
from agent_rl.data.sources import read_raw
from agent_rl.data.storage import unpacked
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.evaluation.summary import cell
from agent_rl.reasoning_rm.reward_module import RewardModule
from agent_rl.reasoning_rm.sample import DataSample
from agent_rl.remote import ChatClient, EndpointConfig
from agent_rl.rewards.component import Component, as_value
from agent_rl.rewards.judge.kinds import chat_thinks
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate
from agent_rl.rewards.judge.verdict import POINTS, SWAPPED, VerdictError, pair_form
from agent_rl.rewards.models.model import Model, ModelConfig
from agent_rl.trajectory import Message, StopReason, Trajectory, Turn
from agent_rl.trajectory.estimates import estimate_rate
from agent_rl.work.concurrency import together

CATEGORIES = ("subset", "source", "category")
"""Keys of a sample's metadata that may contain its category, by which benchmarks group their results."""


@dataclass(frozen=True)
class JudgeSource:
    """A judge whose agreement with the ground truth can be measured.

    Attributes:
        judge: returns the score of a sample's only answer, or `A`, `B` or `tie` for a pair; raises VerdictError if the
            reply contains no verdict, and UnscoredError if there is no reply.
        compares: whether the judge compares the answers of a pair; otherwise it scores one answer at a time.
    """

    judge: Callable[[DataSample], Awaitable[float | str]]
    compares: bool = False


def template_judge(
    endpoint: EndpointConfig, template: type[BasePromptTemplate], body: Mapping[str, Any] | None = None
) -> JudgeSource:
    """Return a judge that fills a prompt template and sends it to a generative model at a chat endpoint.

    Args:
        endpoint: address and name of the model.
        template: a template whose verdict contains a `score` or `preference` field.
        body: additional fields of the request.

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
    """Return a judge that calls a discriminative reward model, configured with the `reward_model` component's keys.

    Raises:
        ConfigError: see `Model`.
    """
    model = Model("model", "rm eval", config)

    async def judge(sample: DataSample) -> float:
        score, _ = await model.score(_as_trajectory(sample))
        return score

    return JudgeSource(judge)


def component_judge(component: Component) -> JudgeSource:
    """Return a judge that scores an answer with a reward component, as if the answer were an agent's only turn."""

    async def judge(sample: DataSample) -> float:
        return float(as_value(await component.measure(_as_trajectory(sample))).value)

    return JudgeSource(judge)


def read_samples(paths: Iterable[str], *, score: str = "helpfulness", limit: int | None = None) -> list[DataSample]:
    """Read samples from files that contain rows, or examples in any form that `agent_rl.data.preferences` reads.

    Args:
        paths: paths of CSV, JSON, JSON lines or parquet files.
        score: name of the rating that serves as the true score of an answer.
        limit: maximum number of samples to read from the start of each file; None means all.

    Raises:
        ConfigError: a sample cannot be read or contains no ground truth; the error names the file and the line.
    """
    samples: list[DataSample] = []
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
                    raise ConfigError("truth", "the sample has neither a score nor a preference", "Remove the sample")
            except ConfigError as error:
                raise ConfigError(f"{raw.place}, {error.key}", error.problem, error.remedy) from error
            samples.append(sample)
    return samples


@dataclass
class Judged:
    """A sample with its verdicts; an unreadable verdict is None."""

    sample: DataSample
    verdicts: list[float | str | None] = field(default_factory=list)
    """One score, the scores of A and B, or the winner in each order (in the second order, A and B are swapped)."""
    failed: str = ""
    """The reason why there is no reply, or "" if there is a reply."""


async def judge_all(
    judge: JudgeSource,
    samples: Sequence[DataSample],
    *,
    at_once: int = 32,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Judged]:
    """Ask the judge for its verdicts on every sample.

    Args:
        judge: the judge.
        samples: the samples to judge.
        at_once: maximum number of samples that are judged concurrently.
        advance: called with 1 after each sample.

    Raises:
        ConfigError: the judge cannot be reached, or a sample is not a pair although the judge compares two answers.
        UnscoredError: the judge did not reply to any sample.
    """
    free = asyncio.Semaphore(at_once)

    async def work(sample: DataSample) -> Judged:
        async with free:
            judged = await _judge_sample(judge, sample)
            advance(1)
            return judged

    judged = await together(list(map(work, samples)))
    if judged and all(sample.failed for sample in judged):
        raise UnscoredError(f"the judge did not reply to any sample: {judged[0].failed}")
    return judged


async def _judge_sample(judge: JudgeSource, sample: DataSample) -> Judged:
    if judge.compares:
        if len(sample.answers) != 2:
            problem = f"a sample has {len(sample.answers)} answers, but the template compares two"
            raise ConfigError("--template", problem, "Use a pointwise template")
        variants = [sample, sample.swapped()]
    else:
        alone = {"scores": None, "preference": None}
        variants = [sample.model_copy(update={"answers": [answer], **alone}) for answer in sample.answers]
    judged = Judged(sample)
    for verdict in await asyncio.gather(*map(judge.judge, variants), return_exceptions=True):
        if isinstance(verdict, UnscoredError):
            judged.failed = str(verdict)
        elif isinstance(verdict, BaseException) and not isinstance(verdict, VerdictError):
            raise verdict
        judged.verdicts.append(None if isinstance(verdict, BaseException) else verdict)
    return judged


def report_on(judged: Sequence[Judged]) -> dict[str, Any]:
    """Return a judge's agreement with the ground truth on the judged samples, as JSON data.

    Returns:
        The numbers that `agent-rl rm eval --json` lists; an undefined number is None. `failed` is the number of samples
        without a reply; of the other numbers, only `samples` includes them. `accuracy` is the share of right verdicts,
        with its confidence interval; a right verdict names the true winner of a pair, or rounds to the same integer as
        the true score. `unparsable` is the share of verdicts that could not be read, and `consistent` is the share of
        pairs with the same winner in both orders. `both_orders` is the accuracy as JudgeBench
        (https://arxiv.org/abs/2410.12784, section 4) defines it: the share of pairs for which more verdicts name the
        true winner than the other answer.
    """
    answered = [sample for sample in judged if not sample.failed]
    rates: list[float] = []
    categories: dict[str, list[float]] = defaultdict(list)
    for item in answered:
        if (rate := _share_right(item)) is not None:
            rates.append(rate)
            name = next((item.sample.metadata[key] for key in CATEGORIES if key in item.sample.metadata), None)
            if name is not None:
                categories[str(name)].append(rate)
    means = {name: fmean(values) for name, values in sorted(categories.items())}
    scores = [
        (verdict, true)
        for item in answered
        for verdict, true in zip(item.verdicts, item.sample.scores or (), strict=False)
        if isinstance(verdict, float)
    ]
    predicted, truth = [verdict for verdict, _ in scores], [true for _, true in scores]
    compared = [item.verdicts for item in answered if any(isinstance(verdict, str) for verdict in item.verdicts)]
    winners = [verdict for verdicts in compared for verdict in verdicts if verdict is not None]
    return {
        "samples": len(judged),
        "failed": len(judged) - len(answered),
        "unparsable": _mean(verdict is None for item in answered for verdict in item.verdicts),
        "accuracy": estimate_rate([[rate] for rate in rates]).plain() if rates else None,
        "both_orders": _mean(_wins(item) for item in answered if item.sample.preference in ("A", "B")),
        "categories": means,
        "mean_of_categories": _mean(means.values()),
        "mae": _mean(abs(verdict - true) for verdict, true in scores),
        "pearson": correlation(predicted, truth),
        "spearman": correlation(predicted, truth, "spearman"),
        "position_bias": _mean((winner == "A") - (winner == "B") for winner in winners),
        "consistent": _mean(
            first == SWAPPED[str(swapped)] for first, swapped in compared if None not in (first, swapped)
        ),
        "ties": _mean(winner == "tie" for winner in winners),
    }


def correlation(
    one: Sequence[float], other: Sequence[float], method: Literal["pearson", "spearman"] = "pearson"
) -> float | None:
    """Return the Pearson or Spearman correlation of two lists, or None if it is undefined."""
    import pandas as pd

    value = float(pd.DataFrame({"one": one, "other": other}, dtype=float).corr(method)["one"]["other"])
    return None if math.isnan(value) else value


def _as_trajectory(sample: DataSample) -> Trajectory:
    prompt = f"{sample.context}\n\n{sample.query}" if sample.context else sample.query
    (answer,) = sample.answers
    return Trajectory([Message("user", prompt)], StopReason.ANSWERED, turns=[Turn(answer)], answer=answer)


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return fmean(numbers) if numbers else None


def _share_right(judged: Judged) -> float | None:
    """Return the share of right verdicts on a sample, or None if its ground truth does not allow a comparison."""
    sample, verdicts = judged.sample, judged.verdicts
    if sample.preference is None:
        if len(verdicts) != 1 or not sample.scores:
            return None
        score, true = verdicts[0], sample.scores[0]
        return float(isinstance(score, float) and math.floor(score + 0.5) == math.floor(true + 0.5))
    if any(isinstance(verdict, str) for verdict in verdicts) or verdicts == [None, None]:
        orders = [sample.preference, SWAPPED[sample.preference]]
        return fmean(float(verdict == true) for verdict, true in zip(verdicts, orders, strict=True))
    score_a, score_b = verdicts
    if not isinstance(score_a, float) or not isinstance(score_b, float):
        return 0.0
    points = 1.0 if score_a > score_b else 0.0 if score_a < score_b else 0.5
    return 1.0 - abs(points - POINTS[sample.preference]) if sample.preference != "tie" else float(points == 0.5)


def _wins(judged: Judged) -> bool:
    """Whether more verdicts on a pair name the true winner than the other answer."""
    true, verdicts = judged.sample.preference, judged.verdicts
    if not any(isinstance(verdict, str) for verdict in verdicts):
        return _share_right(judged) == 1.0
    winners = [verdicts[0], SWAPPED.get(str(verdicts[1]))]
    return winners.count(true) > winners.count(SWAPPED[str(true)])


def judge_table(report: Mapping[str, Any], title: str) -> Table:
    """Return the report as a table for a terminal."""
    table = Table(title=Text(title), title_justify="left", show_header=False)
    table.add_row("accuracy", cell(report["accuracy"]))
    names = (
        *("both_orders", "mae", "pearson", "spearman", "position_bias", "consistent", "ties", "unparsable"),
        "mean_of_categories",
    )
    numbers = {name.replace("_", " "): report[name] for name in names}
    numbers |= {f"  {name}": value for name, value in report["categories"].items()}
    for name, value in numbers.items():
        if value is not None:
            table.add_row(Text(name), f"{value:.3f}")
    table.add_row("samples", f"{report['samples']:,}")
    if report["failed"]:
        table.add_row("without a reply", f"{report['failed']:,}")
    return table
