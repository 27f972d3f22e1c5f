"""The section `agent_rl.data`: which row is drawn next."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from agent_rl.settings.errors import InvalidValueError
from agent_rl.settings.section import Section

__all__ = ["BandSettings", "DataSettings", "DropSettings", "ReplaySettings", "StageSettings"]

Weight = Annotated[float, Field(ge=0)]
Weights = dict[str, Weight] | list[Weight]


class BandSettings(Section):
    """Rows by their success rate, as the policy has it now: neither too easy nor too hard."""

    low: float = 0.0
    """Least success rate of a row that is drawn. A row that was never drawn has none, and is drawn."""
    high: float = 1.0
    """Greatest success rate of a row that is drawn."""
    explore: float = Field(default=0.1, gt=0, le=1)
    """Share of the other rows that each pass draws all the same, so that their success rates can change."""

    @model_validator(mode="after")
    def _ordered(self) -> BandSettings:
        if self.low > self.high:
            raise InvalidValueError(f"low={self.low:g} is above high={self.high:g}", "Swap them")
        return self


class StageSettings(Section):
    """A stage of a curriculum. Each but the last ends after a step, at a reward, or at whichever comes first."""

    until_step: int | None = Field(default=None, ge=1)
    """The last step of the stage; null: the step does not end it."""
    until_reward: float | None = None
    """The stage ends when the mean of `agent_rl.data.measure` reaches this; null: the reward does not end it."""
    over_steps: int = Field(default=5, ge=1)
    """Steps of the stage, the latest ones, over which that mean is taken."""
    difficulty: tuple[float, float] | None = None
    """Least and greatest `extra_info.difficulty` of the rows that are drawn; null: all rows."""
    weights: Weights | None = None
    """As `agent_rl.data.weights`, which they replace during the stage; null: unchanged."""


class DropSettings(Section):
    """Rows that teach nothing any more are not drawn again."""

    solved_after: int | None = Field(default=None, ge=1)
    """Visits in a row with a success rate of at least `solved_from`, after which a row is dropped; null: never."""
    hopeless_after: int | None = Field(default=None, ge=1)
    """Visits in a row with a success rate of at most `hopeless_to`, after which a row is dropped; null: never."""
    solved_from: float = 1.0
    """Success rate of a visit from which the row counts as solved."""
    hopeless_to: float = 0.0
    """Success rate of a visit up to which the row counts as hopeless."""


class ReplaySettings(Section):
    """Rows at which the policy has failed are drawn again, before their source's next pass."""

    share: float = Field(gt=0, lt=1)
    """Greatest share of all draws that are such rows."""
    below: float
    """A row whose latest success rate is below this is drawn once more."""


class DataSettings(Section):
    """The order of training rows. With nothing set, verl's own order holds."""

    weights: Weights = Field(default_factory=dict)
    """Share of the draws by `data_source` (shell wildcards), or a list with one for each of `data.train_files`; 0: no
    row is drawn. Empty: shares as the sources have rows."""
    temperature: float | None = Field(default=None, ge=1)
    """Instead of weights: shares proportional to rows^(1/temperature); 1: as the sources have rows, above: closer to
    equal shares."""
    order: Literal["file", "shuffled", "difficulty"] | None = None
    """The order within a pass through a source: as in the files, shuffled by `data.seed`, or by
    `extra_info.difficulty`, easiest first; null: `shuffled`, with `data.shuffle=false` `file`."""
    stages: list[StageSettings] = Field(default_factory=list)
    """A curriculum; empty: none."""
    measure: str | None = None
    """What of a trajectory counts as its success: `score`, or the name of a value that the reward reports; null: `acc`,
    or the score where the reward does not report it. A row's success rate is the mean over its samples."""
    band: BandSettings | None = None
    """Draw rows by their success rate; null: all rows."""
    drop: DropSettings | None = None
    """Stop drawing rows that are always solved, or never; null: none."""
    replay: ReplaySettings | None = None
    """Draw failed rows once more; null: none."""

    @model_validator(mode="after")
    def _fits(self) -> DataSettings:
        if self.weights and self.temperature is not None:
            raise InvalidValueError("weights and temperature both set the shares", "Remove one of them")
        for number, stage in enumerate(self.stages):
            ends = stage.until_step is not None or stage.until_reward is not None
            is_last = number == len(self.stages) - 1
            if ends == is_last:
                problem = f"stages[{number}] {'is the last and has' if ends else 'has no'} until_step or until_reward"
                remedy = "Every stage but the last ends at one of them; the last holds until the run ends"
                raise InvalidValueError(problem, remedy)
        return self

    @property
    def is_set(self) -> bool:
        """Whether agent_rl decides the order."""
        return self != type(self)()
