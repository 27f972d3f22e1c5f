"""Decides which row a training run draws next, based on the shares of sources, a curriculum and replay.

    order = RowOrder(rows, settings.data, seed=1)
    row = order.next()
    order.report(step, [(row, success_rate)])

A pass draws each row of a source at most once. The rows, the settings, the seed and the reported success rates
determine the order: every random choice is derived from a hash of seed, source, pass and row, and drawing from the
source with the largest deficit keeps the shares exact. `state` returns plain data from which another process can
continue with the same draws.

This module works with row numbers, not with rows, and does not depend on verl or torch.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_rl.data.shares import shares
from agent_rl.errors import ConfigError, FatalError
from agent_rl.settings.data import DataSettings, DropSettings, StageSettings

KEY = "agent_rl.data"
CHUNK = 256
"""Number of rows that are examined at a time in the search for the next row."""
NEWEST = 0.5
"""Weight of the latest visit in a row's success rate; the first visit sets the rate."""

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RowFacts:
    """Facts about the rows of the training files, in the files' order.

    Attributes:
        sources: `data_source` of each row.
        difficulties: `extra_info.difficulty` of each row, or None.
        files: for each file in `data.train_files`, its path and the data sources that it contains.
        digest: digest of the rows' content; `load` rejects a state that has another digest.
    """

    sources: Sequence[str]
    difficulties: Sequence[float | None]
    files: Sequence[tuple[str, Sequence[str]]] = ()
    digest: str = ""


@dataclass
class _Pass:
    """A pass through a source's rows: the number of the pass, and the number of rows that the pass has covered."""

    number: int = 0
    cursor: int = 0


@dataclass
class _Progress:
    """The current position in the row order, without the rows' success rates.

    `recent` contains the mean success rates of the stage's latest steps; `deficits` counts each source's missing draws.
    Until the next report, the sources in `dry` have no row to draw, and `free` disables the difficulty band.
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
    """The endless sequence in which a run draws its rows.

    Args:
        rows: facts about the rows; rows are numbered in the order of these facts.
        settings: the `agent_rl.data` section; `order: null` means `shuffled`.
        seed: random seed for all shuffling.

    Attributes:
        names: sorted names of the sources.
        sources: for each row, the position of its source in `names`.

    Raises:
        ConfigError: the rows do not match the settings.
    """

    def __init__(self, rows: RowFacts, settings: DataSettings, seed: int = 0) -> None:
        if not rows.sources:
            raise ConfigError("data.train_files", "there are no rows", "Use files that have rows")
        self._rows, self._settings = rows, settings
        names, codes = np.unique(rows.sources, return_inverse=True)
        self.names: list[str] = names.tolist()
        self.sources: Numbers = codes.astype(np.int64)
        self._difficulties = np.array(rows.difficulties, dtype=np.float64)
        self._rates = np.full(len(codes), math.nan, dtype=np.float64)
        self._streaks = np.zeros(len(codes), dtype=np.int64)
        self._stages = settings.stages or [StageSettings()]
        counts = dict(zip(self.names, np.bincount(self.sources).tolist(), strict=True))
        self._shares: list[list[float]] = []
        for number, stage in enumerate(self._stages):
            weights, temperature, key = settings.weights, settings.temperature, "weights"
            if stage.weights is not None:
                weights, temperature, key = stage.weights, None, f"stages[{number}].weights"
            self._shares.append(shares(counts, weights, temperature, rows.files, f"{KEY}.{key}"))
        self._position = _Progress(seed, [_Pass() for _ in names], [0.0] * len(names))
        self._permutations: dict[int, tuple[_Pass, Numbers]] = {}
        self._require_drawable()

    def next(self) -> int:
        """Return the number of the next row.

        Raises:
            FatalError: every row has been dropped.
        """
        row = self._failed_row()
        if row is None:
            row = self._draw()
        if row is None and not self._position.free:  # if no row is in the band, any other row is better than none
            self._position.free, self._position.dry = True, []
            row = self._draw()
        if row is None:
            problem = "no row is left to draw, because all rows were dropped as solved or hopeless"
            raise FatalError(f"{KEY}.drop: {problem}. Stop here, add rows, or raise solved_after and hopeless_after")
        return row

    def report(self, step: int, visits: Iterable[tuple[int, float]]) -> None:
        """Record the success rates of a step.

        Args:
            step: number of the completed training step.
            visits: (row, success rate) for each group of samples in the step, in any order.
        """
        rates = sorted((row, rate) for row, rate in visits if math.isfinite(rate))
        position, replay = self._position, self._settings.replay
        position.step, position.free, position.dry = step, False, []
        failed = set(position.failed)
        for row, rate in rates:
            known, streak, drop = self._rates[row], self._streaks[row], self._settings.drop
            self._rates[row] = rate if math.isnan(known) else (1 - NEWEST) * known + NEWEST * rate
            if drop is not None:
                solved, hopeless = rate >= drop.solved_from, rate <= drop.hopeless_to
                self._streaks[row] = max(streak, 0) + 1 if solved else min(streak, 0) - 1 if hopeless else 0
            if replay is not None and rate < replay.below and row not in failed:
                position.failed.append(row)
                failed.add(row)
        self._change_stage([rate for _, rate in rates])

    def metrics(self) -> dict[str, float]:
        """Return the metrics to log: the number of the stage, counted from 1, and several row counts."""
        rows, known = np.arange(len(self.sources)), ~np.isnan(self._rates)
        values = {"rows": len(rows), "visited": known.sum()}
        if self._settings.drop is not None:
            values["dropped"] = self._is_dropped(rows).sum()
        if self._settings.band is not None:
            values["in_band"] = (self._is_in_band(rows) & known).sum()
        values["stage"] = self._position.stage + 1
        if self._settings.replay is not None:
            values["to_replay"] = len(self._position.failed)
        return {f"data/{name}": float(value) for name, value in values.items()}

    def state(self) -> dict[str, Any]:
        """Return an independent copy of the state as plain data, for `load`."""
        table = {
            "files": [path for path, _ in self._rows.files],
            "count": len(self.sources),
            "digest": self._rows.digest,
            "rates": self._rates.tobytes(),
            "streaks": self._streaks.tobytes(),
        }
        return {"table": table, "progress": asdict(self._position)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that another `RowOrder` saved, with that one's seed but this one's settings.

        Raises:
            ConfigError: the state belongs to other rows or to verl's order.
        """
        if "progress" not in state:
            problem = "the checkpoint was saved with verl's own row order, which no other order can continue"
            raise ConfigError(KEY, problem, "Remove the section, or start again with trainer.resume_mode=disable")
        table, count = state["table"], len(self.sources)
        if (table["count"], table["digest"]) != (count, self._rows.digest):
            here = ", ".join(path for path, _ in self._rows.files)
            problem = f"{here}: these {count} rows differ from the {table['count']} rows in the checkpoint"
            remedy = f"Use the files {', '.join(table['files'])}, or start again with trainer.resume_mode=disable"
            raise ConfigError("data.train_files", problem, remedy)
        self._rates = np.frombuffer(table["rates"], dtype=np.float64).copy()
        self._streaks = np.frombuffer(table["streaks"], dtype=np.int64).copy()
        progress = copy.deepcopy(state["progress"])
        progress["passes"] = [_Pass(**item) for item in progress["passes"]]
        self._position = _Progress(**progress)
        self._position.stage = min(self._position.stage, len(self._stages) - 1)
        self._permutations.clear()

    def _failed_row(self) -> int | None:
        """Return the first failed row that may be drawn again, or None if no replay is due or no such row exists."""
        position = self._position
        if self._settings.replay is None:
            return None
        position.failed_deficit = min(position.failed_deficit + self._settings.replay.share, 1.0)
        if position.failed_deficit < 1 - 1e-9:
            return None
        rows = np.array(position.failed, dtype=np.int64)
        fits = self._allowed(rows) & (np.array(self._shares[position.stage])[self.sources[rows]] > 0)
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
        """Return the next row in a source's current pass, or None if the rest of the pass has no row to draw."""
        current, band = self._position.passes[code], self._settings.band
        rows = self._permutation(code)
        for start in range(current.cursor, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            fits = self._allowed(chunk)
            if band is not None and not self._position.free:
                draws = hashed(f"{self._position.seed}/explore/{self.names[code]}/{current.number}", chunk)
                fits &= self._is_in_band(chunk) | (draws / 2.0**64 < band.explore)
            if fits.any():
                place = int(np.argmax(fits))
                current.cursor = start + place + 1
                return int(chunk[place])
        current.cursor = len(rows)
        return None

    def _permutation(self, code: int) -> Numbers:
        """Return the rows of a source in the order of its current pass."""
        current = self._position.passes[code]
        known, rows = self._permutations.get(code, (None, np.zeros(0, dtype=np.int64)))
        if known is not current:
            rows = np.flatnonzero(self.sources == code)
            noise = hashed(f"{self._position.seed}/pass/{self.names[code]}/{current.number}", rows)
            if self._settings.order == "difficulty":
                rows = rows[np.lexsort((noise, self._difficulties[rows]))]
            elif self._settings.order != "file":
                rows = rows[np.argsort(noise, kind="stable")]
            self._permutations[code] = current, rows
        return rows

    def _allowed(self, rows: Numbers) -> Mask:
        """Whether each row belongs to the current stage and is not dropped."""
        return self._in_range(rows, self._stages[self._position.stage].difficulty) & ~self._is_dropped(rows)

    def _in_range(self, rows: Numbers, bounds: tuple[float, float] | None) -> Mask:
        """Whether each row's difficulty is within the bounds; None means no bounds."""
        low, high = bounds or (-math.inf, math.inf)
        in_range: Mask = (self._difficulties[rows] >= low) & (self._difficulties[rows] <= high) | (bounds is None)
        return in_range

    def _is_dropped(self, rows: Numbers) -> Mask:
        """Whether each row was solved on too many consecutive visits, or hopeless on too many."""
        drop, streaks = self._settings.drop or DropSettings(), self._streaks[rows]
        solved, hopeless = drop.solved_after or math.inf, drop.hopeless_after or math.inf
        dropped: Mask = (streaks >= solved) | (streaks <= -hopeless)
        return dropped

    def _is_in_band(self, rows: Numbers) -> Mask:
        """Whether each row has a success rate in the band, or no known rate."""
        band, rates = self._settings.band, self._rates[rows]
        in_band: Mask = np.isnan(rates)
        return in_band if band is None else in_band | ((rates >= band.low) & (rates <= band.high))

    def _change_stage(self, rates: list[float]) -> None:
        """Advance to the next stage if the current stage has ended; the new stage draws rows in new passes."""
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
                current.cursor = len(self.sources)
        position.recent = []

    def _require_drawable(self) -> None:
        """Reject a stage without rows, and rows without a difficulty if a setting depends on it."""
        keys = ["order"] if self._settings.order == "difficulty" else []
        keys += [f"stages[{number}].difficulty" for number, each in enumerate(self._stages) if each.difficulty]
        missing = np.flatnonzero(np.isnan(self._difficulties))
        if keys and len(missing):
            first = f"the first is row {missing[0]} ({self._rows.sources[missing[0]]})"
            problem = f"{len(missing)} rows have no extra_info.difficulty; {first}"
            raise ConfigError(f"{KEY}.{keys[0]}", problem, "Set extra_info.difficulty to a number in every row")
        for number, stage in enumerate(self._stages):
            rows = np.flatnonzero(np.array(self._shares[number])[self.sources] > 0)
            if stage.difficulty is not None and not self._in_range(rows, stage.difficulty).any():
                low, high = stage.difficulty
                values, key = self._difficulties[rows], f"{KEY}.stages[{number}].difficulty"
                problem = f"no row with a weight has a difficulty from {low:g} to {high:g}"
                raise ConfigError(key, problem, f"Choose a range that overlaps {values.min():g} to {values.max():g}")


def hashed(key: str, numbers: Numbers) -> NDArray[np.uint64]:
    """Hash each number into the range 0 to 2^64 - 1 with splitmix64 (https://prng.di.unimi.it/splitmix64.c)."""
    start = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
    mixed: NDArray[np.uint64] = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed += np.full(len(numbers), start, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed
