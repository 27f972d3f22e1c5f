"""The sections that apply to every episode: `agent_rl.budget`, `final_turn`, `policy`, `thinking`, `tools`, `trace`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agent_rl.settings.section import Section


class BudgetSettings(Section):
    """Limits for one episode, in addition to verl's limits on turns and tokens."""

    max_tool_calls: int | None = Field(default=None, ge=0)
    """Maximum number of tool calls in one episode. Null means no limit."""
    max_seconds: float | None = Field(default=None, gt=0)
    """Maximum duration of one episode in seconds. Null means no limit."""
    max_malformed: int = Field(default=3, ge=1)
    """Number of consecutive malformed turns after which the episode ends."""
    max_repeats: int | None = Field(default=None, ge=1)
    """Number of consecutive turns with only repeated calls after which the episode ends. Null means no limit."""
    tool_timeout_s: float = Field(default=30.0, gt=0)
    """Timeout of one tool call in seconds, unless the tool's entry sets `timeout_s`."""


class FinalTurnSettings(Section):
    """A last turn that asks for the answer when a budget is nearly spent."""

    enabled: bool = False
    """Whether the policy gets a last turn when a budget is nearly spent."""
    text: str | None = None
    """Text that asks the policy to answer in its last turn. Null means the default text."""
    reserve_tokens: int = Field(default=0, ge=0)
    """Number of response tokens that are reserved for the last turn and its text. With 0, there is no last turn when
    the tokens are spent."""
    reserve_seconds: float = Field(default=0.0, ge=0)
    """Number of seconds of `budget.max_seconds` that are reserved for the last turn. With 0, there is no last turn when
    the time is up."""


class ThinkingSettings(Section):
    """Settings for `<think>` blocks, which a format never reads."""

    history: Literal["keep", "template"] = "keep"
    """`keep`: the context keeps all sampled tokens. `template`: if the chat template drops thoughts of earlier
    turns, the context drops them too, and the trajectory becomes several training sequences."""


class ToolsSettings(Section):
    """Settings for all tools. The settings of one tool are in its entry in the tool file."""

    max_result_tokens: int | None = Field(default=None, ge=32)
    """Maximum number of tokens of a result that the policy sees, instead of verl's limit in characters. Null means
    verl's limit."""
    cache_path: str | None = None
    """File on a local disk that stores the results of tools with `cache: shared`. Null means memory only."""
    on_error: Literal["unscored", "observe"] = "unscored"
    """Effect of an exception in a tool that is neither a `ToolError` nor an outage. `unscored`: the trajectory gets no
    score, and the eighth identical traceback stops the run. `observe`: the policy sees the exception."""
    reuse_results: bool = True
    """Whether a repeated call of a reusable tool gets the earlier result."""


class TraceSettings(Section):
    """Settings for the files in which trajectories are stored."""

    path: str | None = None
    """JSONL file to which every trajectory is appended. Null means no file."""
    tokens: bool = False
    """Whether to store token ids, masks and log-probs in `<name>.tokens.jsonl` next to the trace, and the rows and
    advantages of every training batch, in `<name>.batches.jsonl`."""
    part_mib: int = Field(default=1024, gt=0)
    """Size in MiB at which a new part of a file starts: `trace.jsonl`, `trace.1.jsonl`, `trace.2.jsonl`, ..."""
    image_mib: int = Field(default=10240, ge=0)
    """Maximum size in MiB of the images that are stored in `<name>.images/` next to the trace. For later images, only
    the name is stored."""


class PolicySettings(Section):
    """The source of the trajectories that a run trains on."""

    trace: str | None = None
    """Folder of a finished run in `mode=sync`. `policy=trace` trains on this run's stored trajectories and starts no
    engine. Null means that the engine samples."""


class RunSettings(Section):
    """Settings for the files of a training run, and for its output in the terminal."""

    folder: str | None = None
    """Folder with run.json, log, metrics, rollouts and checkpoints. Null means `outputs/<trainer.experiment_name>`."""
    progress: Literal["panel", "lines", "verl"] | None = None
    """What `agent-rl train` shows. `panel`: a live panel. `lines`: one line per step. `verl`: every line of the log.
    Null means the panel in a terminal, and lines elsewhere or if `TERM` is `dumb` or `NO_COLOR` is set."""
    log_probs_every: int = Field(default=10, ge=1)
    """Interval in steps between passes that compute log-probs before the update. The setting applies to runs that could
    use the log-probs of the update itself, because they have one update per batch and neither a KL penalty in the
    reward nor a correction. The pass measures `actor/entropy` and differences between the engine and the trainer."""
    weight_sync_timeout_s: float = Field(default=1800.0, gt=0)
    """Seconds after which a transfer of weights to the engine counts as a deadlock and ends the run. A transfer usually
    takes less than a minute."""
    max_sampling_s: float | None = Field(default=None, gt=0)
    """Seconds of sampling after which the remaining trajectories of a step, except ReMax's greedy ones, are ended and
    left out. Null means no limit. `actor_rollout_ref.rollout.over_sample_rate` is the share of a step's trajectories
    that are ended and left out when the others are complete. Both require `mode=sync`; the other modes do not wait for
    slow trajectories."""
