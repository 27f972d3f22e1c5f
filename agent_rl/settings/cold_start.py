"""The section `agent_rl.cold_start`: a generated world, and the small model that is taught to act in it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agent_rl.settings.section import Section

__all__ = ["ColdStartSettings", "ColdStartStage", "SmallModelSettings"]


class SmallModelSettings(Section):
    """The model, a Qwen2 with tied embeddings and a byte-level BPE tokenizer, made from scratch."""

    vocabulary: int = Field(default=512, ge=260)
    """Most tokens of the tokenizer, which is trained on the worked episodes."""
    hidden: int = Field(default=64, ge=2)
    """Width."""
    layers: int = Field(default=2, ge=1)
    """Number of blocks; copying needs two."""
    heads: int = Field(default=4, ge=1)
    """Attention heads."""
    init_std: float = Field(default=0.1, gt=0)
    """Standard deviation of the initial weights."""


class ColdStartStage(Section):
    """Supervised training on one mix of habits."""

    mix: dict[str, Annotated[float, Field(ge=0)]]
    """Share of the worked episodes by the name of the habit."""
    steps: int = Field(ge=1)
    """Optimizer steps."""
    lr: float = Field(default=3e-3, gt=0)
    """Greatest learning rate; it rises over the first 30 steps and falls as a cosine to a fiftieth."""


class ColdStartSettings(Section):
    """What `agent-rl sft` teaches before reinforcement learning."""

    world: str
    """Name of a file in `agent_rl/data/worlds`."""
    seed: int = 0
    """Seed of the rows, of the model's first weights and of the worked episodes."""
    episode_rows: int = Field(default=2000, ge=1)
    """Rows of which worked episodes are written."""
    train_rows: int = Field(default=1000, ge=1)
    """Rows for reinforcement learning."""
    held_out: int = Field(default=300, ge=1)
    """Rows that are only evaluated on."""
    rows: Literal["recipe"] | None = None
    """`recipe`: those of its `data.train_files`, as far as the world's solver can work them, and of its
    `data.val_files`. None: the world's own."""
    batch: int = Field(default=32, ge=1)
    """Worked episodes of an optimizer step."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Worked episodes in one pass of the model. None: at most 16 on a CPU, as many as 8192 tokens hold on a GPU."""
    base: str | None = None
    """Folder of a model to begin with, which keeps its tokenizer. None: `model` is made from scratch."""
    model: SmallModelSettings = SmallModelSettings()
    """A table of its own below."""
    stages: list[ColdStartStage] = Field(min_length=1)
    """One after the other."""
