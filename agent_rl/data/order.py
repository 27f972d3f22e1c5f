"""Decides which row of a training run is drawn next: shares of sources, curriculum and replay.

    order = RowOrder(rows, settings.data, seed=1)
    row = order.next()
    order.report(step, [(row, success_rate)])

The rows of a source are drawn in passes without replacement. The order is a function of the rows, the settings, the
seed and the reports: all randomness is a hash of seed, source, pass and row, and drawing from the source with the
largest deficit keeps the shares exact. `state` is plain data that another process can use to continue the same draws.

The order contains row numbers, not rows, and does not depend on verl or torch.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_rl.data.row_table import RowFacts, RowTable, shares
from agent_rl.errors import ConfigError, FatalError
from agent_rl.settings.data import DataSettings, StageSettings

__all__ = ["RowOrder", "hashed"]

KEY = "agent_rl.data"
CHUNK = 256
"""Number of rows that the search for the next row examines at a time."""


@dataclass
class _Pass:
    """A pass through the rows of a source: its number, and how many rows it has covered."""

    number: int = 0
    cursor: int = 0


@dataclass
class _Progress:
    """The position of the order, without the success rates of the rows.

    `recent` has the mean success rates of the stage's latest steps, and `deficits` the number of draws that each source
    is behind its share. Until the next report, sources in `dry` have no row to draw, and `free` turns the band off.
    """

    seed: int
    passes: list[_Pass]
    deficits: list[float]
    step: int = 0
    stage: int = 0
    recent: list[float] = field(default_factory=list)
    dry: list[int] = field(default_factory=list)
    free: bool = False
    failed: list[int] = field(default_factory=list)
    failed_deficit: float = 0.0


class RowOrder:
    """The endless order of a run's rows.

    Args:
        rows: the rows of the files; a row's number is its position.
        settings: the `agent_rl.data` section; `order: null` means `shuffled`.
        seed: seed of all shuffling.

    Raises:
        ConfigError: the rows do not match the settings.
    """

    def __init__(self, rows: RowFacts, settings: DataSettings, seed: int = 0) -> None:
        self.table = RowTable(rows, settings)
        self._settings = settings
        self._stages = settings.stages or [StageSettings()]
        names = self.table.names
        self._shares: list[list[float]] = []
        for number, stage in enumerate(self._stages):
            weights, temperature, key = settings.weights, settings.temperature, "weights"
            if stage.weights is not None:
                weights, temperature, key = stage.weights, None, f"stages[{number}].weights"
            self._shares.append(shares(self.table.counts, weights, temperature, rows.files, f"{KEY}.{key}"))
        self._position = _Progress(seed, [_Pass() for _ in names], [0.0] * len(names))
        self._permutations: dict[int, tuple[_Pass, NDArray[np.int64]]] = {}
        self._require_drawable()

    def next(self) -> int:
        """Return the number of the next row.

        Raises:
            FatalError: every row has been dropped.
        """
        row = self._failed_row()
        if row is None:
            row = self._draw()
        if row is None and not self._position.free:  # the band is empty: any row is better than none
            self._position.free, self._position.dry = True, []
            row = self._draw()
        if row is None:
            problem = "no row is left to draw: all of them were dropped as solved or hopeless"
            raise FatalError(f"{KEY}.drop: {problem}. Stop here, add rows, or raise solved_after and hopeless_after")
        return row

    def report(self, step: int, visits: Iterable[tuple[int, float]]) -> None:
        """Record the success rates of a step.

        Args:
            step: number of the completed training step.
            visits: (row, success rate) for each group of samples of the step; their order does not matter.
        """
        rates = sorted((row, rate) for row, rate in visits if math.isfinite(rate))
        position, replay = self._position, self._settings.replay
        position.step, position.free, position.dry = step, False, []
        failed = set(position.failed)
        for row, rate in rates:
            self.table.count(row, rate)
            if replay is not None and rate < replay.below and row not in failed:
                position.failed.append(row)
                failed.add(row)
        self._change_stage([rate for _, rate in rates])

    def metrics(self) -> dict[str, float]:
        """Return the metrics to log: the stage, counted from 1, and the numbers of rows."""
        values = self.table.metrics() | {"stage": self._position.stage + 1.0}
        if self._settings.replay is not None:
            values["to_replay"] = float(len(self._position.failed))
        return {f"data/{name}": value for name, value in values.items()}

    def state(self) -> dict[str, Any]:
        """Return an independent copy of the state as plain data, for `load`."""
        return {"table": self.table.state(), "progress": asdict(self._position)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another order, with its seed and this order's settings.

        Raises:
            ConfigError: the state belongs to other rows, or to verl's order.
        """
        if "progress" not in state:
            problem = "the checkpoint was saved with verl's own row order, which no other order can continue"
            raise ConfigError(KEY, problem, "Remove the section, or start again with trainer.resume_mode=disable")
        self.table.load(state["table"])
        progress = copy.deepcopy(state["progress"])
        progress["passes"] = [_Pass(item["number"], item["cursor"]) for item in progress["passes"]]
        self._position = _Progress(**progress)
        self._position.stage = min(self._position.stage, len(self._stages) - 1)
        self._permutations.clear()

    def _failed_row(self) -> int | None:
        """Return the first failed row that may be drawn, if a failed row is due."""
        position = self._position
        if self._settings.replay is None:
            return None
        position.failed_deficit = min(position.failed_deficit + self._settings.replay.share, 1.0)
        if position.failed_deficit < 1 - 1e-9:
            return None
        rows = np.array(position.failed, dtype=np.int64)
        fits = self._allowed(rows) & (np.array(self._shares[position.stage])[self.table.sources[rows]] > 0)
        if not fits.any():
            return None
        position.failed_deficit -= 1
        return position.failed.pop(int(np.argmax(fits)))

    def _draw(self) -> int | None:
        """Return the next row of the source that is furthest behind its share."""
        position, weights = self._position, self._shares[self._position.stage]
        alive = [code for code, share in enumerate(weights) if share > 0 and code not in position.dry]
        while alive:
            total = sum(weights[code] for code in alive)
            gains = {code: weights[code] / total for code in alive}
            code = max(alive, key=lambda code: (round(position.deficits[code] + gains[code], 9), -code))
            row = self._next_in_pass(code)
            if row is None:
                position.passes[code] = _Pass(position.passes[code].number + 1)
                row = self._next_in_pass(code)
            if row is not None:
                for source, gain in gains.items():
                    position.deficits[source] += gain
                position.deficits[code] -= 1
                return row
            alive.remove(code)
            position.dry.append(code)
        return None

    def _next_in_pass(self, code: int) -> int | None:
        """Return the next row of a source in its current pass; None if no row may be drawn."""
        current, band = self._position.passes[code], self._settings.band
        rows = self._permutation(code)
        for start in range(current.cursor, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            fits = self._allowed(chunk)
            if band is not None and not self._position.free:
                draws = hashed(f"{self._position.seed}/explore/{self.table.names[code]}/{current.number}", chunk)
                fits &= self.table.is_in_band(chunk) | (draws / 2.0**64 < band.explore)
            if fits.any():
                place = int(np.argmax(fits))
                current.cursor = start + place + 1
                return int(chunk[place])
        current.cursor = len(rows)
        return None

    def _permutation(self, code: int) -> NDArray[np.int64]:
        """Return the rows of a source in the order of its current pass."""
        current = self._position.passes[code]
        known, rows = self._permutations.get(code, (None, np.zeros(0, dtype=np.int64)))
        if known is not current:
            rows = self.table.members(code)
            noise = hashed(f"{self._position.seed}/pass/{self.table.names[code]}/{current.number}", rows)
            if self._settings.order == "difficulty":
                rows = rows[np.lexsort((noise, self.table.difficulties[rows]))]
            elif self._settings.order != "file":
                rows = rows[np.argsort(noise, kind="stable")]
            self._permutations[code] = current, rows
        return rows

    def _allowed(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the rows belong to the stage and are not dropped."""
        return self.table.in_range(rows, self._stages[self._position.stage].difficulty) & ~self.table.is_dropped(rows)

    def _change_stage(self, rates: list[float]) -> None:
        """Advance to the next stage if this one has ended; the new stage draws rows in new passes."""
        position = self._position
        if rates:
            position.recent.append(math.fsum(rates) / len(rates))
        while position.stage < len(self._stages) - 1:
            stage = self._stages[position.stage]
            recent = position.recent = position.recent[-stage.over_steps :]
            mean = math.fsum(recent) / len(recent) if len(recent) == stage.over_steps else -math.inf
            if not (
                (stage.until_step is not None and position.step >= stage.until_step)
                or (stage.until_reward is not None and mean >= stage.until_reward)
            ):
                return
            position.stage += 1
            position.recent, position.deficits = [], [0.0] * len(position.deficits)
            for current in position.passes:
                current.cursor = len(self.table.sources)
        position.recent = []

    def _require_drawable(self) -> None:
        """Reject a stage without rows, and rows without a difficulty where one is needed."""
        if self._settings.order == "difficulty":
            self.table.require_difficulties(f"{KEY}.order")
        for number, stage in enumerate(self._stages):
            if stage.difficulty is None:
                continue
            key = f"{KEY}.stages[{number}].difficulty"
            self.table.require_difficulties(key)
            rows = np.flatnonzero(np.array(self._shares[number])[self.table.sources] > 0)
            if not self.table.in_range(rows, stage.difficulty).any():
                values = self.table.difficulties[rows]
                problem = (
                    f"no row with a weight has a difficulty from {stage.difficulty[0]:g} to {stage.difficulty[1]:g}"
                )
                raise ConfigError(key, problem, f"Their difficulties range from {values.min():g} to {values.max():g}")


def hashed(key: str, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash each number into the range 0 to 2^64 - 1 with splitmix64 (https://prng.di.unimi.it/splitmix64.c)."""
    start = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
    mixed: NDArray[np.uint64] = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed += np.full(len(numbers), start, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed
