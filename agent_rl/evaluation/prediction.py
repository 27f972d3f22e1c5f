"""Predicts figures of a run, such as its memory, from a run of the recipe's CPU version, before any GPU is rented."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent_rl.errors import ConfigError
from agent_rl.evaluation.parity import compare
from agent_rl.launch.composition import compose
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.checks.data import total_steps
from agent_rl.launch.doctor.checks.memory import GIB, gpu_need
from agent_rl.trajectory import StopReason
from agent_rl.trajectory.trace.tables import read_trace

CARD = 79 * GIB
"""Usable memory of a GPU with 80 GB, in bytes."""


class Prediction(NamedTuple):
    """A quantity of a run, its predicted value, and what the prediction is based on."""

    quantity: str
    value: str
    basis: str


def predict(recipe: str, overrides: Sequence[str], run: str) -> Iterator[Prediction]:
    """Yield predictions about the run that the recipe would start.

    Args:
        recipe: a folder with `config.yaml`, or the name of a recipe.
        overrides: hydra overrides.
        run: the folder of a run of the CPU version.

    Raises:
        ConfigError: the folder contains no trace, or the trace contains no training episode.
    """
    case, tables = Case(config=compose(recipe, overrides), recipe=recipe), read_trace(run)
    episodes = tables.trajectories[tables.trajectories["split"] != "test"]
    if episodes.empty:
        raise ConfigError(run, "the run has no training episode", f"Run VERL_PLATFORM=cpu agent-rl train {recipe}")
    turns = tables.turns[tables.turns["id"].isin(episodes["id"])].groupby("turn")["tokens"].mean()
    basis, most = f"{len(episodes)} training episodes in {run}", max(1, int(episodes["turns"].quantile(0.95)))
    limit, samples = case.number("data.max_response_length", 0), case.number("actor_rollout_ref.rollout.n", 1)
    yield Prediction("turns", f"{episodes['turns'].mean():.1f}, at most {most} in 95% of the episodes", basis)
    yield Prediction("tokens by turn", ", ".join(f"{mean:.0f}" for mean in turns), f"{basis}, in its vocabulary")
    yield Prediction("tokens for each turn", str(limit // most), f"data.max_response_length={limit}, {most} turns")
    truncated = (episodes["stop_reason"] == StopReason.MAX_TOKENS.value).mean()
    yield Prediction("truncated episodes", f"{truncated:.1%}", f"{basis}, with its limit")
    rewards = episodes.groupby(["step", "group"])["reward"]
    shares = (rewards.max() > rewards.min()).groupby("step").mean()
    bound = "" if (own := rewards.size().max()) == samples else f"at {'least' if own < samples else 'most'} "
    value = f"{bound}{shares.iloc[0]:.0%} in the first step, {bound}{shares.iloc[-1]:.0%} in the last"
    yield Prediction("groups with a signal", value, f"{basis}, {own} samples per group (predicted run: {samples})")
    need, bound = gpu_need(case, CARD), "" if case.model.config else "at least "
    value = f"{bound}{need.update / GIB:.0f} GiB in updates, {bound}{need.rollout / GIB:.0f} in rollouts"
    basis = "the doctor's estimate for 80 GB per GPU" + ", without the model's config.json" * bool(bound)
    yield Prediction("memory of a GPU", value if case.model.parameters else "unknown", basis)
    steps = total_steps(case)
    yield Prediction(
        "steps", str(steps or "unknown"), "the configuration" if steps else "the training rows are missing"
    )
    trajectories = steps * case.number("data.train_batch_size", 1) * samples
    rated = [(each.card, hours) for each in compare(recipe, overrides).values() if (hours := each.card.hours)]
    if not rated:
        yield Prediction("hours", "unknown", "no published run of this recipe states its duration")
    for card, hours in rated:
        published = [float(str(card.settings[name])) for name in ("steps", "batch", "samples", "gpus")]
        rate = hours * published[3] / (published[0] * published[1] * published[2])
        value, basis = f"{trajectories * rate / case.world_size:.1f}", f"{card.run}: {hours:g} h on {card.hardware}"
        yield Prediction("hours", value if steps else "unknown", f"GPU-hours per trajectory of {basis}")
