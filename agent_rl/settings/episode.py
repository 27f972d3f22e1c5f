"""The sections that hold for every episode: `agent_rl.budget`, `final_turn`, `thinking`, `tools` and `trace`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agent_rl.settings.section import Section

__all__ = [
    "BudgetSettings",
    "FinalTurnSettings",
    "ThinkingSettings",
    "ToolsSettings",
    "TraceSettings",
]


class BudgetSettings(Section):
    """What one episode may spend, beside verl's own limits on turns and tokens."""

    max_tool_calls: int | None = Field(default=None, ge=0)
    """Tool calls in one episode; null: no limit."""
    max_seconds: float | None = Field(default=None, gt=0)
    """Wall-clock seconds of one episode; null: no limit."""
    max_malformed: int = Field(default=3, ge=1)
    """Malformed turns in a row after which the episode ends."""
    max_repeats: int | None = Field(default=None, ge=1)
    """Turns in a row that only repeat earlier calls, after which the episode ends; null: no limit."""
    tool_timeout_s: float = Field(default=30.0, gt=0)
    """Seconds that one tool call may take, unless the tool's entry has its own `timeout_s`."""


class FinalTurnSettings(Section):
    """A last turn, with the instruction to answer, when a budget is nearly spent."""

    enabled: bool = False
    """Whether there is such a turn."""
    text: str | None = None
    """The instruction; null: the default."""
    reserve_tokens: int = Field(default=0, ge=0)
    """Tokens of the response kept for that turn and its text; 0: no such turn when the tokens are spent."""
    reserve_seconds: float = Field(default=0.0, ge=0)
    """Seconds of `budget.max_seconds` kept for that turn; 0: no such turn when the time is up."""


class ThinkingSettings(Section):
    """What is done with `<think>` blocks; a format never sees them."""

    history: Literal["keep", "template"] = "keep"
    """`keep`: the context keeps what was sampled. `template`: where the chat template drops thoughts of earlier turns,
    so does the context, and the trajectory becomes several training sequences."""


class ToolsSettings(Section):
    """What holds for all tools; the keys of one tool are in its entry of the tool file."""

    max_result_tokens: int | None = Field(default=None, ge=32)
    """Tokens of a result that the policy is shown, instead of verl's limit in characters; null: verl's."""
    cache_path: str | None = None
    """File on a local disk that keeps the results of tools with `cache: shared`; null: memory only."""
    on_error: Literal["unscored", "observe"] = "unscored"
    """What an exception of a tool leads to that is neither a `ToolError` nor an outage. `unscored`: the trajectory is
    not scored, and the same traceback eight times in a run stops it. `observe`: the policy is shown the exception."""
    reuse_results: bool = True
    """Whether a repeated call is answered by the earlier result, where the tool is reusable."""


class TraceSettings(Section):
    """Where trajectories are kept."""

    path: str | None = None
    """JSONL file to which every trajectory is appended; null: none."""
    tokens: bool = False
    """Whether the token ids, masks and log-probs of trajectories are kept as well, in `<name>.tokens.jsonl` beside the
    trace, and the rows and advantages of every training batch, in `<name>.batches.jsonl`."""
    part_mib: int = Field(default=1024, gt=0)
    """Size in MiB of a file after which the next part follows: `trace.jsonl`, `trace.1.jsonl`, `trace.2.jsonl`, ..."""

    image_mib: int = Field(default=10240, ge=0)
    """MiB of images that are kept, in `<name>.images/` beside the trace; one that comes later is only named."""

    @property
    def part_bytes(self) -> int:
        """The size of a part in bytes."""
        return self.part_mib << 20

    @property
    def image_bytes(self) -> int:
        """Most bytes of all images."""
        return self.image_mib << 20


class RunSettings(Section):
    """Where a training run keeps what it writes, and what the terminal shows of it."""

    folder: str | None = None
    """Folder with run.json, log, metrics, rollouts and checkpoints; null: `outputs/<trainer.experiment_name>`."""
    progress: Literal["panel", "lines", "verl"] | None = None
    """What `agent-rl train` shows. `panel`: a frame that is redrawn. `lines`: a line a step. `verl`: every line of the
    log. null: the panel in a terminal, lines elsewhere, or where `TERM` is `dumb` or `NO_COLOR` is set."""
    log_probs_every: int = Field(default=10, ge=1)
    """Steps from one pass of the policy that computes log-probs before the update to the next, in a run where the
    update's own do as well: a batch is used for one update, and no KL penalty in the reward and no correction reads
    them. It gives `actor/entropy` and more about how far engine and trainer are apart. 1: in each step."""
    weight_sync_timeout_s: float = Field(default=1800.0, gt=0)
    """Seconds after which a transfer of the weights to the engine, which usually takes less than a minute, counts as a
    deadlock and ends the run."""
