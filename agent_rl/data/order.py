"""Decides which row of a training run is drawn next: shares of sources, curriculum and replay.

    order = RowOrder(rows, settings.data, seed=1)
    row = order.next()
    order.report(step, [(row, success_rate)])

Each source is gone through in passes without replacement. The order is a function of the rows, the settings, the seed
and what was reported: all randomness is a hash of seed, source, pass and row, and the shares are kept exactly, by the
largest deficit. `state` is plain data, from which another process continues with the same draws.

The order holds row numbers, not rows, and knows neither verl nor torch.
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
"""Rows looked at together in the search for the next one."""


@dataclass
class _Pass:
    """A pass through the rows of a source: which it is, and how many are behind."""

    number: int = 0
    cursor: int = 0


@dataclass
class _Progress:
    """Where the order is, beside what it knows of the rows.

    `recent` has the mean success rates of the stage's latest steps, `deficits` what each source lacks of its share in
    draws. `dry` are sources without a row to draw, and `free` says that the band does not count, until the next report.
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
    """The order of a run's rows, without an end.

    Args:
        rows: of the files; their numbers are positions in them.
        settings: the section `agent_rl.data`; `order: null` is `shuffled`.
        seed: of all shuffling.

    Raises:
        ConfigError: settings and rows do not fit together.
    """

    def __init__(self, rows: RowFacts, settings: DataSettings, seed: int = 0) -> None:
        self.table = RowTable(rows, settings)
        self._settings = settings
        self._stages = settings.stages or [StageSettings()]
        names = self.table.names
        self._shares = [self._shares_of(number, rows) for number in range(len(self._stages))]
        self._at = _Progress(seed, [_Pass() for _ in names], [0.0] * len(names))
        self._permutations: dict[int, tuple[_Pass, NDArray[np.int64]]] = {}
        self._require_drawable()

    def next(self) -> int:
        """The number of the next row.

        Raises:
            FatalError: every row has been dropped.
        """
        row = self._failed_row()
        if row is None:
            row = self._drawn()
        if row is None and not self._at.free:  # no row lies in the band: any is better than none
            self._at.free, self._at.dry = True, []
            row = self._drawn()
        if row is None:
            problem = "no row is left to draw: all of them were dropped as solved or hopeless"
            raise FatalError(f"{KEY}.drop: {problem}. Stop here, or add rows, or raise solved_after and hopeless_after")
        return row

    def report(self, step: int, visits: Iterable[tuple[int, float]]) -> None:
        """Tell how well the policy did.

        Args:
            step: the training step that is complete.
            visits: (row, success rate) for each group of samples of the step; their order does not matter.
        """
        found = sorted((row, rate) for row, rate in visits if math.isfinite(rate))
        at, replay = self._at, self._settings.replay
        at.step, at.free, at.dry = step, False, []
        failed = set(at.failed)
        for row, rate in found:
            self.table.count(row, rate)
            if replay is not None and rate < replay.below and row not in failed:
                at.failed.append(row)
                failed.add(row)
        self._change_stage([rate for _, rate in found])

    def metrics(self) -> dict[str, float]:
        """What to log: the stage, from 1, and numbers of rows."""
        found = self.table.metrics() | {"stage": self._at.stage + 1.0}
        if self._settings.replay is not None:
            found["to_replay"] = float(len(self._at.failed))
        return {f"data/{name}": value for name, value in found.items()}

    def state(self) -> dict[str, Any]:
        """Plain data for `load`, of its own."""
        return {"table": self.table.state(), "progress": asdict(self._at)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where another order was; its seed is taken over, the settings are this one's.

        Raises:
            ConfigError: the state is that of other rows, or of verl's own order.
        """
        if "progress" not in state:
            problem = "the checkpoint was saved with verl's own order of rows, which cannot be continued in another"
            raise ConfigError(KEY, problem, "Remove the section, or start again with trainer.resume_mode=disable")
        self.table.load(state["table"])
        found = copy.deepcopy(state["progress"])
        self._at = _Progress(**{**found, "passes": [_Pass(each["number"], each["cursor"]) for each in found["passes"]]})
        self._at.stage = min(self._at.stage, len(self._stages) - 1)
        self._permutations.clear()

    def _failed_row(self) -> int | None:
        """The first failed row that may be drawn, if it is the turn of one."""
        at = self._at
        if self._settings.replay is None:
            return None
        at.failed_deficit = min(at.failed_deficit + self._settings.replay.share, 1.0)
        if at.failed_deficit < 1 - 1e-9:
            return None
        rows = np.array(at.failed, dtype=np.int64)
        fits = self._allowed(rows) & (np.array(self._shares[at.stage])[self.table.sources[rows]] > 0)
        if not fits.any():
            return None
        at.failed_deficit -= 1
        return at.failed.pop(int(np.argmax(fits)))

    def _drawn(self) -> int | None:
        """The next row of the source that lacks most of its share."""
        at, wanted = self._at, self._shares[self._at.stage]
        alive = [code for code, share in enumerate(wanted) if share > 0 and code not in at.dry]
        while alive:
            whole = sum(wanted[code] for code in alive)
            gains = {code: wanted[code] / whole for code in alive}
            code = max(alive, key=lambda code: (round(at.deficits[code] + gains[code], 9), -code))
            row = self._next_of(code)
            if row is not None:
                for each, gain in gains.items():
                    at.deficits[each] += gain
                at.deficits[code] -= 1
                return row
            alive.remove(code)
            at.dry.append(code)
        return None

    def _next_of(self, code: int) -> int | None:
        """The next row of a source, in this pass or in a new one; None when that has none."""
        row = self._next_in_pass(code)
        if row is None:
            self._at.passes[code] = _Pass(self._at.passes[code].number + 1)
            row = self._next_in_pass(code)
        return row

    def _next_in_pass(self, code: int) -> int | None:
        current, band = self._at.passes[code], self._settings.band
        rows = self._permutation(code)
        for start in range(current.cursor, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            fits = self._allowed(chunk)
            if band is not None and not self._at.free:
                draws = hashed(f"{self._at.seed}/explore/{self.table.names[code]}/{current.number}", chunk)
                fits &= self.table.is_in_band(chunk) | (draws / 2.0**64 < band.explore)
            if fits.any():
                place = int(np.argmax(fits))
                current.cursor = start + place + 1
                return int(chunk[place])
        current.cursor = len(rows)
        return None

    def _permutation(self, code: int) -> NDArray[np.int64]:
        """The rows of a source in the order of its current pass."""
        current = self._at.passes[code]
        known, rows = self._permutations.get(code, (None, np.zeros(0, dtype=np.int64)))
        if known is not current:
            rows = self.table.members(code)
            noise = hashed(f"{self._at.seed}/pass/{self.table.names[code]}/{current.number}", rows)
            if self._settings.order == "difficulty":
                rows = rows[np.lexsort((noise, self.table.difficulties[rows]))]
            elif self._settings.order != "file":
                rows = rows[np.argsort(noise, kind="stable")]
            self._permutations[code] = current, rows
        return rows

    def _allowed(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the stage has the rows, and they are not dropped."""
        return self.table.in_range(rows, self._stages[self._at.stage].difficulty) & ~self.table.is_dropped(rows)

    def _change_stage(self, rates: list[float]) -> None:
        """Go to the next stage where this one has ended; its rows are drawn in new passes."""
        at = self._at
        if rates:
            at.recent.append(math.fsum(rates) / len(rates))
        while at.stage < len(self._stages) - 1:
            stage = self._stages[at.stage]
            del at.recent[: -stage.over_steps]
            mean = math.fsum(at.recent) / len(at.recent) if len(at.recent) == stage.over_steps else -math.inf
            if not (
                (stage.until_step is not None and at.step >= stage.until_step)
                or (stage.until_reward is not None and mean >= stage.until_reward)
            ):
                return
            at.stage += 1
            at.recent, at.deficits = [], [0.0] * len(at.deficits)
            for each in at.passes:
                each.cursor = len(self.table.sources)
        at.recent = []

    def _shares_of(self, number: int, rows: RowFacts) -> list[float]:
        """The share of each source in a stage."""
        stage, settings, counts = self._stages[number], self._settings, self.table.counts
        if stage.weights is not None:
            return shares(counts, stage.weights, None, rows.files, f"{KEY}.stages[{number}].weights")
        return shares(counts, settings.weights, settings.temperature, rows.files, f"{KEY}.weights")

    def _require_drawable(self) -> None:
        """Refuse a stage without rows, and rows without a difficulty where one is needed."""
        if self._settings.order == "difficulty":
            self.table.require_difficulties(f"{KEY}.order")
        for number, stage in enumerate(self._stages):
            if stage.difficulty is None:
                continue
            key = f"{KEY}.stages[{number}].difficulty"
            self.table.require_difficulties(key)
            rows = np.flatnonzero(np.array(self._shares[number])[self.table.sources] > 0)
            if not self.table.in_range(rows, stage.difficulty).any():
                found = self.table.difficulties[rows]
                problem = (
                    f"no row with a weight has a difficulty from {stage.difficulty[0]:g} to {stage.difficulty[1]:g}"
                )
                raise ConfigError(key, problem, f"Their difficulties reach from {found.min():g} to {found.max():g}")


def hashed(key: str, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A number from 0 to 2^64 - 1 for each number, by splitmix64 (https://prng.di.unimi.it/splitmix64.c)."""
    start = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
    mixed: NDArray[np.uint64] = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed += np.full(len(numbers), start, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed
