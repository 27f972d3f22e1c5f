"""The `agent_rl:` section of a hydra configuration, as typed settings; `data` and `reward` are in separate files.

Every key has a default, so the section may be absent. An unknown key or a value of the wrong type raises a
`ConfigError` with the full key and the nearest known name. The section does not duplicate any key of verl:
`actor_rollout_ref.rollout.multi_turn.max_assistant_turns` limits turns, `data.max_response_length` limits tokens, and
`actor_rollout_ref.rollout.multi_turn.tool_config_path` is the tool file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from agent_rl.settings.data import DataSettings
from agent_rl.settings.errors import InvalidValueError, Place, Section, validated
from agent_rl.settings.reward import RewardSettings


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
    """Settings for `<think>` blocks, which no format reads."""

    history: Literal["keep", "template"] = "keep"
    """`keep`: the context keeps all sampled tokens. `template`: if the chat template drops thoughts of earlier
    turns, the context drops them too, and the trajectory becomes several training sequences."""


class ToolsSettings(Section):
    """Settings for all tools. The settings of one tool are in its entry in the tool file."""

    max_result_tokens: int | None = Field(default=None, ge=32)
    """Maximum number of tokens that the policy sees of a result. Null means that verl's limit on the number of
    characters applies instead."""
    cache_path: str | None = None
    """File on a local disk that stores the results of tools with `cache: shared`. Null means memory only."""
    on_error: Literal["unscored", "observe"] = "unscored"
    """What happens if a tool's exception is neither a `ToolError` nor an outage. `unscored`: the trajectory gets no
    score, and the eighth identical traceback stops the run. `observe`: the policy sees the exception."""
    reuse_results: bool = True
    """Whether a repeated call of a reusable tool gets the earlier result."""


class TraceSettings(Section):
    """Settings for the files in which trajectories are stored."""

    path: str | None = None
    """JSONL file to which every trajectory is appended. Null means no file."""
    tokens: bool = False
    """Whether to store token ids, masks and log-probs in `<name>.tokens.jsonl` next to the trace, and the rows and
    advantages of every training batch in `<name>.batches.jsonl`."""
    part_mib: int = Field(default=1024, gt=0)
    """Size in MiB at which a new part of a file starts: `trace.jsonl`, `trace.1.jsonl`, `trace.2.jsonl`, ..."""
    image_mib: int = Field(default=10240, ge=0)
    """Maximum total size in MiB of the images in `<name>.images/` next to the trace. Once this size is reached, only
    the names of images are stored."""


class PolicySettings(Section):
    """The source of the trajectories that a run trains on."""

    trace: str | None = None
    """Folder of a finished run that used `mode=sync`. With `policy=trace`, training uses the trajectories in this
    folder and starts no engine. Null means that the engine samples trajectories."""


class RunSettings(Section):
    """Settings for the files of a training run, and for its output in the terminal."""

    folder: str | None = None
    """Folder for run.json, log, metrics, rollouts and checkpoints. Null means `outputs/<trainer.experiment_name>`."""
    progress: Literal["panel", "lines", "verl"] | None = None
    """What `agent-rl train` shows. `panel`: a live panel. `lines`: one line per step. `verl`: every line of the log.
    Null means the panel in a terminal, and lines elsewhere or if `TERM` is `dumb` or `NO_COLOR` is set."""
    log_probs_every: int = Field(default=10, ge=1)
    """Interval in steps between passes that compute log-probs before the update. The setting applies
    only to runs that do not need this pass, because they make one update per batch and use neither a KL penalty in the
    reward nor a correction. The pass measures `actor/entropy` and differences between the engine and the trainer."""
    weight_sync_timeout_s: float = Field(default=1800.0, gt=0)
    """Seconds after which a transfer of weights to the engine counts as a deadlock and the run stops. A transfer
    usually takes less than a minute."""
    max_sampling_s: float | None = Field(default=None, gt=0)
    """Seconds of sampling after which the remaining trajectories of a step, except ReMax's greedy ones, are stopped and
    left out. Null means no limit. `actor_rollout_ref.rollout.over_sample_rate` is the share of a step's trajectories
    that are stopped and left out when the others are complete. Both settings require `mode=sync`; the other modes do
    not wait for slow trajectories."""


class _Turns(Section):
    instructions: str | None = None
    """System message. Null means the default message, and an empty string means no message."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that contains an observation."""


class CodeActSettings(_Turns):
    """Settings for the code blocks of `code_act_agent`. The agent fills in `{answer}` in the instructions."""

    answer: Literal["boxed", "text"] = "boxed"
    """Where a turn without code contains the answer. `boxed`: in `\\boxed{...}`, which the instructions then ask for.
    `text`: the whole text is the answer."""
    tool: str | None = None
    """Name of the tool that executes code. Null means the only tool, or `python` if there are several."""


class FoldingSettings(Section):
    """Settings for how `folding_agent` folds a history into notes when the context is nearly full."""

    loop: str = "react_agent"
    """Name of the wrapped agent, which keeps its format, settings and user."""
    reserve_tokens: int = Field(default=512, ge=1)
    """Number of tokens of `data.max_response_length` that are reserved for the notes and the request for them."""
    max_folds: int = Field(default=8, ge=0)
    """Maximum number of folds per episode. Each fold adds a training sequence."""
    instructions: str | None = None
    """Text of the request for notes. Null means the default."""


class PlanActSettings(_Turns):
    """Settings for the plan and the ReAct turns of `plan_act_agent`, which fills in `{tools}` and `{tool_names}`."""


class ReactSettings(_Turns):
    """Settings for `react_agent`'s text format. The agent fills in `{tools}` and `{tool_names}` in the instructions."""

    examples: tuple[str, ...] = ()
    """Complete example episodes after the instructions, for a few-shot prompt. `default` means built-in examples."""
    parsing: Literal["tolerant", "strict"] = "tolerant"
    """`strict`: a turn that deviates from the instructions in any way is malformed."""


class SearchSettings(_Turns):
    """Settings for the tags of `search_agent`."""

    tool: str | None = None
    """Name of the tool that receives queries. Null means the only tool, or `search` if there are several."""


class UserSimSettings(_Turns):
    """Settings for the simulated user of `user_sim_agent`, and for the agent's text format. The agent fills in
    `{tools}` and `{tool_names}` in the instructions.
    """

    user: str = "scripted"
    """`scripted`, `llm`, or your `agent_rl.agents.users.user.User` as `package.module.Class` or `file.py:Class`."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the user's class."""
    native: bool = False
    """Whether the agent writes calls in the format of `tool_call_agent`. A turn without a call is then a message to the
    user, and `instructions` and `observation_role` have no effect."""


class GatewaySettings(Section):
    """The user's agent, set by `command`, `function` or `url`. A row's `extra_info.program` overrides `command`."""

    command: str | None = None
    """Shell command of the program, for example `python my_agent.py`."""
    function: str | None = None
    """Python function `file.py:run` or `package.module.run`, which is called with the row, the base URL and the key. A
    process imports the function once and calls it in a fork for each episode."""
    python: str | None = None
    """Python interpreter of a virtual environment, to run `function`. Null means the run's own interpreter."""
    url: str | None = None
    """HTTP endpoint that runs the agent. The endpoint gets a POST request with `row`, `base_url` and `api_key`."""
    models: list[str] = Field(default_factory=list)
    """Names of models whose turns are trained on. Requests for other models are answered, but not trained on. An empty
    list means the model named in the first request of each episode."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Maximum number of seconds that the program runs for one row."""
    programs: int = Field(default=16, ge=1)
    """Maximum number of programs that run concurrently in one agent-loop worker."""
    environment: list[str] = Field(default_factory=list)
    """Names of the environment variables with secrets to pass to the program. Other variables whose names suggest
    secrets are removed."""
    ground_truth: bool = False
    """Whether the file that contains the row for the program includes `ground_truth`."""

    @model_validator(mode="after")
    def _one_agent(self) -> GatewaySettings:
        names = [name for name in ("command", "function", "url") if getattr(self, name) is not None]
        if len(names) > 1:
            raise InvalidValueError(f"{' and '.join(names)} are both set", "Keep one of them")
        if self.python is not None and self.function is None:
            problem = "python is set, but the interpreter runs only a function, and none is set"
            raise InvalidValueError(problem, "Set function, or remove python and write the interpreter into command")
        return self


class GigpoSettings(Section):
    """Settings for the advantages of states in `algo=gigpo`."""

    weight: float = Field(default=1.0, ge=0)
    """Factor by which a state's advantage is multiplied before it is added to the trajectory's advantage."""
    discount: float = Field(default=0.95, ge=0, le=1)
    """Discount per turn for later rewards in the reward-to-go. Turns in the same state are compared by this sum."""
    history: int = Field(default=0, ge=0)
    """Number of previous turns whose states and texts must also match for two turns to be in the same state."""


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
    """A stage of supervised training on one mix of habits."""

    mix: dict[str, Annotated[float, Field(ge=0)]]
    """Share of the worked episodes with each habit, by the habit's name."""
    steps: int = Field(ge=1)
    """Number of optimizer steps."""
    lr: float = Field(default=3e-3, gt=0)
    """Peak learning rate, reached after 30 steps of warm-up. Cosine decay then lowers it to a fiftieth of the peak."""


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
    `data.val_files`. Null means rows from the generated world."""
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


SECTION = "agent_rl"


class AgentRLSettings(Section):
    """The whole `agent_rl` section."""

    budget: BudgetSettings = BudgetSettings()
    code_act: CodeActSettings = CodeActSettings()
    cold_start: ColdStartSettings | None = None
    """The generated world and the small model that `agent-rl sft` makes. Null means no cold start."""
    data: DataSettings = DataSettings()
    environments: dict[str, str] = Field(default_factory=dict)
    """Classes of tasks, by name: `file.py`, `file.py:Class` or `package.module.Class`. A row's `extra_info.environment`
    selects an environment for the row."""
    final_turn: FinalTurnSettings = FinalTurnSettings()
    folding: FoldingSettings = FoldingSettings()
    gateway: GatewaySettings = GatewaySettings()
    gigpo: GigpoSettings = GigpoSettings()
    hooks: str | None = None
    """Subclass of `agent_rl.agents.episode.hooks.Hooks`: `package.module.Class`, or `path/to/file.py:Class`."""
    mask_overlong: bool = False
    """Exclude trajectories that ran out of tokens (`max_tokens`) from the loss, as DAPO's overlong filtering does. The
    rewards of these trajectories still count in their groups."""
    mask_void: Literal["none", "turn", "trajectory"] = "none"
    """What to exclude from the loss if a turn has neither a call nor an answer, because it is malformed or the token
    budget cut it off. `turn`: only that turn. `trajectory`: all turns of the trajectory."""
    plan_act: PlanActSettings = PlanActSettings()
    policy: PolicySettings = PolicySettings()
    react: ReactSettings = ReactSettings()
    reward: RewardSettings = RewardSettings()
    run: RunSettings = RunSettings()
    search: SearchSettings = SearchSettings()
    thinking: ThinkingSettings = ThinkingSettings()
    tools: ToolsSettings = ToolsSettings()
    trace: TraceSettings = TraceSettings()
    trainer_class: str | None = None
    """Your own trainer: `package.module.Class` or `path/to/file.py:Class`, derived from
    `agent_rl.verl_adapter.trainer.AgentTrainer` or from verl's trainer for the mode."""
    user_sim: UserSimSettings = UserSimSettings()

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | Any) -> AgentRLSettings:
        """Read the section from a whole trainer configuration (a mapping or an omegaconf DictConfig).

        Args:
            config: the configuration; None means the defaults.

        Raises:
            ConfigError: a value is invalid; the error contains the key, the value and a remedy.
        """
        section = config.get(SECTION) if config is not None else None
        return cls() if section is None else validated(cls, _plain(section), Place() / SECTION)


def _plain(value: Any) -> Any:
    """Convert omegaconf containers to dicts and lists and resolve interpolations, without importing omegaconf."""
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in value}
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return value
    return [_plain(item) for item in value]
