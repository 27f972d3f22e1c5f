"""The `agent_rl.data` section: the order in which training draws rows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from agent_rl.settings.errors import InvalidValueError, Section

Weight = Annotated[float, Field(ge=0)]
Weights = dict[str, Weight] | list[Weight]


class BandSettings(Section):
    """Selects rows that are neither too easy nor too hard, by the policy's current success rate."""

    low: float = 0.0
    """Lowest success rate of the rows to draw. Rows without a success rate are always eligible."""
    high: float = 1.0
    """Highest success rate of the rows to draw."""
    explore: float = Field(default=0.1, gt=0, le=1)
    """Share of the rows outside the band from `low` to `high` that each pass draws to update their success rates."""

    @model_validator(mode="after")
    def _ordered(self) -> BandSettings:
        if self.low > self.high:
            raise InvalidValueError(f"low={self.low:g} is above high={self.high:g}", "Swap them")
        return self


class StageSettings(Section):
    """A stage of a curriculum. Each stage except the last ends after a step or at a reward, whichever comes first."""

    until_step: int | None = Field(default=None, ge=1)
    """Last training step of the stage. Null means no limit on steps."""
    until_reward: float | None = None
    """The stage ends when the mean of `agent_rl.data.measure` reaches this value. Null means no limit on the reward."""
    over_steps: int = Field(default=5, ge=1)
    """Number of the stage's latest steps over which the mean for `until_reward` is computed."""
    difficulty: tuple[float, float] | None = None
    """Lowest and highest `extra_info.difficulty` of the rows to draw. Null means all rows."""
    weights: Weights | None = None
    """Weights that replace `agent_rl.data.weights` during the stage. Null means no change."""


class DropSettings(Section):
    """Stops drawing rows from which the policy can no longer learn."""

    solved_after: int | None = Field(default=None, ge=1)
    """A row is dropped after this number of consecutive visits with a success rate of at least `solved_from`. Null
    means never."""
    hopeless_after: int | None = Field(default=None, ge=1)
    """A row is dropped after this number of consecutive visits with a success rate of at most `hopeless_to`. Null
    means never."""
    solved_from: float = 1.0
    """Minimum success rate on a visit for the row to count as solved."""
    hopeless_to: float = 0.0
    """Maximum success rate on a visit for the row to count as hopeless."""


class ReplaySettings(Section):
    """Draws failed rows once more before the next pass through their data source."""

    share: float = Field(gt=0, lt=1)
    """Maximum share of all draws that may be repeats of failed rows."""
    below: float
    """Success rate below which a row is drawn once more."""


class DataSettings(Section):
    """Settings for the order of training rows. If no key is set, verl's order applies."""

    weights: Weights = Field(default_factory=dict)
    """Share of draws for each `data_source` (shell wildcards are allowed), or a list with one share per file in
    `data.train_files`. A share of 0 excludes the rows. By default, shares are proportional to row counts."""
    temperature: float | None = Field(default=None, ge=1)
    """Alternative to `weights` that makes shares proportional to rows^(1/temperature). With 1, shares are proportional
    to row counts; values above 1 make the shares more equal."""
    order: Literal["file", "shuffled", "difficulty"] | None = None
    """The order of rows within a pass through a source: as in the files, shuffled with `data.seed`, or by
    `extra_info.difficulty`, with the easiest first. Null means `shuffled`, or `file` if `data.shuffle=false`."""
    stages: list[StageSettings] = Field(default_factory=list)
    """Stages of a curriculum. An empty list means no curriculum."""
    measure: str | None = None
    """Value that measures a trajectory's success: `score`, or the name of a value that the reward reports. Null means
    `acc`, or the score if the reward does not report `acc`. A row's success rate is the mean over its samples."""
    band: BandSettings | None = None
    """Selection of rows by their success rate. Null means all rows."""
    drop: DropSettings | None = None
    """Rules for dropping rows that are always or never solved. Null means that no row is dropped."""
    replay: ReplaySettings | None = None
    """Rules for drawing failed rows once more. Null means that failed rows are not drawn again in the same pass."""

    @model_validator(mode="after")
    def _fits(self) -> DataSettings:
        if self.weights and self.temperature is not None:
            raise InvalidValueError("weights and temperature both set the shares", "Remove one of them")
        for number, stage in enumerate(self.stages):
            ends = stage.until_step is not None or stage.until_reward is not None
            is_last = number == len(self.stages) - 1
            if ends == is_last:
                problem = f"stages[{number}] {'is the last and has' if ends else 'has no'} until_step or until_reward"
                remedy = "Set one of them for every stage except the last, which lasts until the run ends"
                raise InvalidValueError(problem, remedy)
        return self

    @property
    def is_set(self) -> bool:
        """Whether agent_rl decides the order of the rows instead of verl."""
        return self != type(self)()
