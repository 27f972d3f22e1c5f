"""The `agent_rl.cold_start` section: a generated world, and the small model that learns to act in it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agent_rl.settings.section import Section


class SmallModelSettings(Section):
    """Settings for a Qwen2 model that is made from scratch, with tied embeddings and a byte-level BPE tokenizer."""

    vocabulary: int = Field(default=512, ge=260)
    """Maximum vocabulary size of the tokenizer, which is trained on the worked episodes."""
    hidden: int = Field(default=64, ge=2)
    """Width of the hidden states."""
    layers: int = Field(default=2, ge=1)
    """Number of transformer blocks. A model needs at least two layers to learn to copy."""
    heads: int = Field(default=4, ge=1)
    """Number of attention heads."""
    init_std: float = Field(default=0.1, gt=0)
    """Standard deviation of the initial weights."""


class ColdStartStage(Section):
    """A stage of supervised training, on one mix of habits."""

    mix: dict[str, Annotated[float, Field(ge=0)]]
    """Share of the worked episodes with each habit, by the habit's name."""
    steps: int = Field(ge=1)
    """Number of optimizer steps."""
    lr: float = Field(default=3e-3, gt=0)
    """Peak learning rate, which is reached after 30 steps of warm-up. It then falls to a fiftieth (cosine decay)."""


class ColdStartSettings(Section):
    """Settings for the training that `agent-rl sft` runs before reinforcement learning."""

    world: str
    """Name of a file in `agent_rl/data/worlds`, or `environment` for the experts of `agent_rl.environments`."""
    seed: int = 0
    """Seed for the rows, the model's initial weights and the worked episodes."""
    episode_rows: int = Field(default=2000, ge=1)
    """Number of rows that get a worked episode."""
    train_rows: int = Field(default=1000, ge=1)
    """Number of rows for reinforcement learning."""
    held_out: int = Field(default=300, ge=1)
    """Number of rows used only for evaluation."""
    rows: Literal["recipe"] | None = None
    """`recipe`: the rows of the recipe's `data.train_files` that the world's solver can solve, and all rows of its
    `data.val_files`. Null means rows of the generated world."""
    batch: int = Field(default=32, ge=1)
    """Number of worked episodes per optimizer step."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Number of worked episodes per forward pass. Null means up to 16 on a CPU, and up to 8192 tokens on a GPU."""
    base: str | None = None
    """Folder of a model to start from, with its tokenizer. Null means that `model` is made from scratch."""
    model: SmallModelSettings = SmallModelSettings()
    """Size of a model that is made from scratch."""
    stages: list[ColdStartStage] = Field(min_length=1)
    """Stages of supervised training, in order."""
