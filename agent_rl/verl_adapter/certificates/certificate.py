"""Certificates, which compare a method's mean gradient with the exact gradient on each process."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from statistics import geometric_mean
from typing import Any

import torch

from agent_rl.verl_adapter.certificates import methods
from agent_rl.verl_adapter.certificates.gradients import Method, TabularWorld
from agent_rl.verl_adapter.certificates.objectives import RETURN, declared
from agent_rl.verl_adapter.certificates.processes import PROCESSES, TabularProcess

LARGE = (16, 256, 2048)
"""The number of groups per prompt in each of the batches, from small to large."""
WHITENED = ("gae", "gdpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
"""Estimators that divide by the batch's standard deviation, so one group does not show their gradient's direction."""
EXACT, SAME_DIRECTION, NEAR = 1e-6, 1e-9, 1e-3
"""Limits on the mean gradient's relative error, on 1 minus its cosine, and on 1 minus a large batch's cosine."""


def certify(
    names: Sequence[str], estimator: str | None = None, sizes: Sequence[int] = LARGE
) -> Iterator[dict[str, Any]]:
    """Yield the certificate of each method.

    Args:
        names: values of `algo=` or estimators; if both `names` and `estimator` are missing, all methods are certified.
        estimator: a user's function, `file.py:f`.
        sizes: the number of groups per prompt in each of the batches, from small to large.

    Raises:
        ConfigError: a name is unknown, or the function does not exist.
    """
    chosen = [] if estimator and not names else methods.find(list(names))
    if estimator is not None:
        yield certify_method(estimator, methods.user_method(estimator), sizes)
    for name in chosen:
        yield certify_method(name, methods.method(name), sizes)


def certify_method(name: str, method: Method, sizes: Sequence[int]) -> dict[str, Any]:
    """Return a method's certificate.

    `cosine` and `length` compare the mean gradient with the exact gradient: the worst cosine and the range of lengths
    over the processes for which the objective is declared. `large_cosine` is the worst cosine in the largest batch.
    `variance` is the per-sample variance of the gradient estimate, divided by its squared length, as a multiple of the
    same figure for `rloo` (geometric mean over the processes). None means that a figure was not computed. `processes`
    contains the figures for each process; for an estimator in `WHITENED`, each cosine is that of the largest batch.
    """
    return summarize(name, method, [certify_process(world(process), method, sizes) for process in PROCESSES])


def summarize(name: str, method: Method, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the certificate of a method from the results of `certify_process`."""
    objective = declared(method.estimator, method.algorithm.norm_adv_by_std_in_grpo)
    inside = [row for row in rows if row["declared"]] or rows
    variances = [row["variance"] for row in rows if row["variance"]]
    lengths = [row["length"] for row in inside]
    return {
        "name": name,
        "objective": objective.formula if objective else None,
        "cosine": None if method.estimator in WHITENED else min(row["cosine"] for row in inside),
        "large_cosine": min((row["large"][-1] for row in inside if row["large"]), default=None),
        "length": [min(lengths), max(lengths)],
        "variance": geometric_mean(variances) if variances else None,
        "verdict": _verdict(inside, [row for row in rows if row not in inside], objective is not None),
        "processes": rows,
    }


def certify_process(world: TabularWorld, method: Method, sizes: Sequence[int] = LARGE[:1]) -> dict[str, Any]:
    """Compare a method's gradient with the exact gradient of one process; `certify_method` explains the figures."""
    process = world.process
    objective = declared(method.estimator, method.algorithm.norm_adv_by_std_in_grpo)
    is_declared = objective is not None and (process.has_two_levels or not objective.needs_two_levels)
    exact = world.exact(objective if objective and is_declared else RETURN, method)
    row = {"process": process.name, "declared": is_declared, "padding": world.depends_on_padding(method)}
    if method.estimator in WHITENED:
        figures = [_compare(world.large_batch(method, size), exact) for size in sizes]
        cosine, length, _ = figures[-1]
        return {**row, "cosine": cosine, "length": length, "error": None, "variance": None, "large": _cosines(figures)}
    mean, variance = world.estimated(method)
    cosine, length, error = _compare(mean, exact)
    large = []
    if cosine < 1 - SAME_DIRECTION:
        large = _cosines(_compare(world.large_batch(method, size), exact) for size in sizes)
    noise = variance / float(mean @ mean) / _reference(process) if cosine else None
    return {**row, "cosine": cosine, "length": length, "error": error, "variance": noise, "large": large}


def _compare(gradient: Any, exact: Any) -> tuple[float, float, float]:
    """Return a gradient's cosine, length and relative error: (0, 0, 1) if it is zero, (0, 0, inf) if not finite."""
    size = float(gradient.norm())
    if not math.isfinite(size) or size < 1e-12:
        return 0.0, 0.0, 1.0 if size < 1e-12 else math.inf
    along = float(gradient @ exact)
    return (
        along / size / float(exact.norm()),
        along / float(exact @ exact),
        float((gradient - exact).norm() / exact.norm()),
    )


def _cosines(figures: Iterable[tuple[float, float, float]]) -> list[float]:
    return [cosine for cosine, *_ in figures]


def _verdict(inside: list[dict[str, Any]], outside: list[dict[str, Any]], has_objective: bool) -> str:
    """Derive the verdict from the rows of processes with a declared objective (`inside`) and from all other rows."""
    worst = min(row["cosine"] for row in inside)
    if any(row["padding"] for row in inside + outside):
        return f"biased: padding rows change the advantages, cosine {worst:.3f}"
    if not has_objective:
        return f"heuristic, cosine {worst:.3f}"
    errors, large = [row["error"] for row in inside], [row["large"] for row in inside]
    if None not in errors and max(errors) < EXACT:
        verdict = "exact"
    elif None not in errors and worst > 1 - SAME_DIRECTION:
        verdict = "proportional"
    elif any(large) and all(cosines[-1] > 1 - NEAR for cosines in large if cosines):
        verdict = "proportional in large batches"
    else:
        verdict = "biased"
    if not outside:
        return verdict
    return f"{verdict} (two reward levels), else heuristic, cosine {min(row['cosine'] for row in outside):.3f}"


@cache
def world(process: TabularProcess) -> TabularWorld:
    """Return a process with its policy."""
    torch.set_num_threads(1)  # the tensors are tiny
    return TabularWorld(process)


@cache
def _reference(process: TabularProcess) -> float:
    """Return the per-sample variance of `rloo`, relative to the squared length of its mean gradient."""
    mean, variance = world(process).estimated(methods.method("rloo"))
    return variance / float(mean @ mean)
