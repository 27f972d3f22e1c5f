"""The `agent_rl:` section of a hydra configuration, as typed settings.

Every key has a default, so the section may be absent. An unknown key or a value of the wrong type is a `ConfigError`
that names the full key and the nearest known name. What verl already has a key for is not repeated here: turns are
`actor_rollout_ref.rollout.multi_turn.max_assistant_turns`, tokens `data.max_response_length`, tools
`actor_rollout_ref.rollout.multi_turn.tool_config_path`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings.reward import ComponentSettings, Schedule, TermSettings
from agent_rl.settings.serving import ServedModelName, ServedModelSettings

__all__ = [
    "AgentRLSettings",
    "BudgetSettings",
    "CassetteSettings",
    "CodeActSettings",
    "CorrectnessSettings",
    "EfficiencySettings",
    "FinalTurnSettings",
    "FoldingSettings",
    "FormatSettings",
    "LexicographicSettings",
    "OverlongSettings",
    "PlanActSettings",
    "ReactSettings",
    "RewardSettings",
    "SearchSettings",
    "ThinkingSettings",
    "ToolsSettings",
    "TraceSettings",
    "UserSimSettings",
    "config_error",
]

SECTION = "agent_rl"
TERMS = ("correctness", "efficiency", "format", "overlong")
"""The components that every reward has."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class BudgetSettings(_Section):
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


class FinalTurnSettings(_Section):
    """A last turn, in which the policy is told that it must answer, when a budget is all but spent."""

    enabled: bool = False
    text: str | None = None
    """What it is told; null: the default."""
    reserve_tokens: int = Field(default=0, ge=0)
    """Tokens of the response kept for that turn and its text; 0: none when the tokens are spent."""
    reserve_seconds: float = Field(default=0.0, ge=0)
    """Seconds of `budget.max_seconds` kept for that turn; 0: none when the time is up."""


class ReactSettings(_Section):
    """The text format of `react_agent`."""

    instructions: str | None = None
    """System text with `{tools}` and `{tool_names}` filled in; null: the default; empty: none."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that carries an observation."""
    examples: tuple[str, ...] = ()
    """Whole episodes that follow the instructions, for a few-shot prompt; the word `default` stands for ours."""
    parsing: Literal["tolerant", "strict"] = "tolerant"
    """`strict`: only what is written to the letter of the instructions is read; else it is malformed."""


class SearchSettings(_Section):
    """The tags of `search_agent`."""

    instructions: str | None = None
    """System text; null: the default; empty: none."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that carries what was found."""
    tool: str | None = None
    """The tool that a query goes to; null: the only one, or `search`."""


class CodeActSettings(_Section):
    """The fenced code of `code_act_agent`."""

    instructions: str | None = None
    """System text with `{answer}` filled in; null: the default; empty: none."""
    answer: Literal["boxed", "text"] = "boxed"
    """What answers in a turn without code: `\\boxed{...}`, which is then asked for, or the whole text."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that carries the output."""
    tool: str | None = None
    """The tool that executes code; null: the only one, or `python`."""


class PlanActSettings(_Section):
    """The plan and the ReAct turns of `plan_act_agent`."""

    instructions: str | None = None
    """System text with `{tools}` and `{tool_names}` filled in; null: the default; empty: none."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that carries an observation."""


class UserSimSettings(_Section):
    """The simulated user of `user_sim_agent`, and the agent's text format."""

    user: str = "scripted"
    """`scripted`, `llm`, or a class of `agent_rl.agents.users.user.User`, `package.module.Class` or `file.py:Class`."""
    config: dict[str, Any] = Field(default_factory=dict)
    """What the class takes."""
    native: bool = False
    """Whether the agent writes as `tool_call_agent` does, a turn without a call being a message."""
    instructions: str | None = None
    """The agent's system text with `{tools}` and `{tool_names}` filled in; null: the default; empty: none."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that carries an observation. Neither this nor `instructions` counts with `native`."""


class FoldingSettings(_Section):
    """How `folding_agent` folds a history into notes when the context is nearly full."""

    loop: str = "react_agent"
    """The loop whose format, settings and user it has."""
    reserve_tokens: int = Field(default=512, ge=1)
    """Of `data.max_response_length`, kept for being asked for notes and for writing them."""
    max_folds: int = Field(default=8, ge=0)
    """How often at most; each makes one more training sequence."""
    instructions: str | None = None
    """What asks for notes; null: the default."""


class CorrectnessSettings(TermSettings):
    """1 for the right answer, 0 otherwise."""

    scorer: str = "auto"
    """`auto`: by the row's data_source, a user's verdict first; else a scorer's name, `file.py:function`, or `none`."""


class EfficiencySettings(TermSettings):
    """What an episode has used, as a penalty: the sum of the parts below, never below `floor`."""

    penalty: float = Field(default=0.1, ge=0)
    """For each tool call beyond `free_calls`."""
    free_calls: int = Field(default=3, ge=0)
    floor: float = Field(default=-0.5, le=0)
    per_error: float = Field(default=0.0, ge=0)
    """For each call that did not end well: an exception, a timeout, wrong arguments, no such tool, skipped."""
    per_repeat: float = Field(default=0.0, ge=0)
    """For each call that is equal to an earlier one."""
    per_redundant: float = Field(default=0.0, ge=0)
    """For each call that told nothing new: it ended well with the text of an earlier result of the same tool."""
    per_1000_tokens: float = Field(default=0.0, ge=0)
    """For 1,000 response tokens, sampled and observed together; a part counts as a part."""
    per_tool_second: float = Field(default=0.0, ge=0)
    """For each second that the episode waited for tools: it depends on the machine."""
    per_generation_second: float = Field(default=0.0, ge=0)
    """For each second that the episode waited for the engine: it depends on the machine and its load."""


class FormatSettings(TermSettings):
    """Minus `malformed_turns / turns`, at least -1; a share of all turns could be diluted by turns that do nothing."""

    weight: float | Schedule = 0.2
    turns: int = Field(default=3, ge=1)
    """Malformed turns at which the value is -1."""


class OverlongSettings(TermSettings):
    """From 0 to `-penalty` over the last `buffer_tokens` before `data.max_response_length`; off by default."""

    penalty: float = Field(default=0.0, ge=0)
    """0: off."""
    buffer_tokens: int | None = Field(default=None, ge=1)
    """null: a fifth of `data.max_response_length`."""


class LexicographicSettings(_Section):
    """`combine: lexicographic`: what comes first decides, what follows only among equals."""

    order: tuple[str, ...] = ("correctness", "efficiency", "format")
    """Components from the most important; their values must be clipped or normalized to a range."""
    levels: int = Field(default=100, ge=1)
    """How finely two values of a component are told apart."""


class RewardSettings(_Section):
    """The components of the trajectory reward, and how the total is made of them."""

    combine: str = "sum"
    """`sum`, `product`, `min` or `max` of weight times value, `lexicographic`, or a function of one's own,
    `package.module.function` or `file.py:function`, of (values, weights, trajectory)."""
    lexicographic: LexicographicSettings = LexicographicSettings()
    correctness: CorrectnessSettings = CorrectnessSettings()
    efficiency: EfficiencySettings = EfficiencySettings()
    format: FormatSettings = FormatSettings()
    overlong: OverlongSettings = OverlongSettings()
    components: dict[str, ComponentSettings] = Field(default_factory=dict)
    """Further components by names of one's own, under which they are logged."""
    reward_api: str | dict[str, Any] | None = None
    """Address of a reward service that gives `correctness`, for example `http://host:8080/get_reward2`; or the whole
    config of the component `reward_api`."""
    per_data_source: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By data source (with shell wildcards, the first that fits counts), keys of this section that differ there."""
    max_unscored_share: float = Field(default=0.5, ge=0, le=1)
    """Share of a step's trajectories that may go unscored; beyond it the run stops. 1: never."""
    models: dict[ServedModelName, ServedModelSettings] = Field(default_factory=dict)
    """Reward models that the run serves itself."""

    @field_validator("components")
    @classmethod
    def _named(cls, value: dict[str, ComponentSettings]) -> dict[str, ComponentSettings]:
        for name in value:
            if name in TERMS or not name.isidentifier():
                raise ValueError(f"a component cannot be called {name!r}: choose a name like `helpful`")
        return value


class CassetteSettings(_Section):
    """A recording of all tool calls, or its replay, in which no tool is executed."""

    mode: Literal["record", "replay"] | None = None
    """null: neither."""
    path: str | None = None
    """JSONL file, to which a recording appends."""

    @model_validator(mode="after")
    def _complete(self) -> CassetteSettings:
        if (self.mode is None) != (self.path is None):
            raise ValueError("mode and path go together")
        return self


class ToolsSettings(_Section):
    """What holds for all tools; what holds for one stands in its entry of the tool file."""

    max_result_tokens: int | None = Field(default=None, ge=32)
    """Tokens of a result that the policy is shown, instead of verl's limit in characters; null: verl's."""
    cache_path: str | None = None
    """SQLite file on a local disk that keeps the results of tools with `cache: shared`; null: memory only."""
    reuse_results: bool = True
    """Whether a repeated call is answered by the earlier result, where the tool is idempotent."""
    cassette: CassetteSettings = CassetteSettings()


class ThinkingSettings(_Section):
    """What becomes of `<think>` blocks; a format never sees them."""

    history: Literal["keep", "template"] = "keep"
    """`keep`: the context keeps what was sampled. `template`: where the chat template drops thoughts of earlier turns,
    so does the context, and the trajectory becomes several training sequences."""


class TraceSettings(_Section):
    """Where trajectories are kept."""

    path: str | None = None
    """JSONL file to which every trajectory is appended; null: none."""
    tokens: bool = False
    """Whether a trajectory keeps its token ids, mask and log-probs as well, for `agent-rl audit tokens`."""


class AgentRLSettings(_Section):
    """The whole section."""

    budget: BudgetSettings = BudgetSettings()
    code_act: CodeActSettings = CodeActSettings()
    final_turn: FinalTurnSettings = FinalTurnSettings()
    folding: FoldingSettings = FoldingSettings()
    hooks: str | None = None
    """Subclass of `agent_rl.agents.episode.hooks.Hooks`: `package.module.Class`, or `path/to/file.py:Class`."""
    plan_act: PlanActSettings = PlanActSettings()
    react: ReactSettings = ReactSettings()
    reward: RewardSettings = RewardSettings()
    search: SearchSettings = SearchSettings()
    thinking: ThinkingSettings = ThinkingSettings()
    tools: ToolsSettings = ToolsSettings()
    trace: TraceSettings = TraceSettings()
    user_sim: UserSimSettings = UserSimSettings()

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | Any) -> AgentRLSettings:
        """Read the section from a whole trainer configuration (a mapping or an omegaconf DictConfig).

        Raises:
            ConfigError: naming the key, the value and the remedy.
        """
        section = config.get(SECTION) if config is not None else None
        if section is None:
            return cls()
        if not isinstance(section, Mapping):
            raise ConfigError(SECTION, f"expected a mapping, got {section!r}", "Write keys below it, or remove it")
        try:
            return cls.model_validate(_plain(section))
        except ValidationError as error:
            raise config_error(cls, error, SECTION) from error


def _plain(value: Any) -> Any:
    """Plain containers from omegaconf's, interpolations resolved, without importing omegaconf."""
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in value}
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return value
    return [_plain(item) for item in value]


def config_error(root: type[BaseModel], error: ValidationError, section: str = "") -> ConfigError:
    """The first problem that pydantic found, in terms of the user's keys, which begin with `section`."""
    found = error.errors()
    misfits = [each for each in found if each["type"] == "float_type" and isinstance(each["input"], Mapping)]
    first = next((each for each in found if each not in misfits), found[0])  # the alternative that was meant
    location, models = _location(root, first["loc"])
    key = ".".join([section, *location]).lstrip(".")
    if first["type"] == "extra_forbidden":
        known = models[-1].model_fields if models else ()
        return ConfigError(key, f"unknown key (value {first['input']!r})", did_you_mean(location[-1], known))
    if first["type"] == "missing":
        return ConfigError(key, "missing", "Write it")
    return ConfigError(key, f"{first['msg']} (value {first['input']!r})", "Mend the value or remove the key")


def _location(root: type[BaseModel], parts: Sequence[int | str]) -> tuple[list[str], list[type[BaseModel]]]:
    """The user's keys of a problem, without what pydantic says of alternatives; and the models on the way."""
    keys: list[str] = []
    models = [root]
    kind: Any = root
    for part in map(str, parts):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[part].annotation if part in kind.model_fields else None
        elif get_origin(kind) in (dict, list, tuple):
            kind = get_args(kind)[-1]
        else:  # one alternative of several, which the part describes
            kind = next((each for each in get_args(kind) if each is not None and _label(each) in part), kind)
            models += [kind] if isinstance(kind, type) and issubclass(kind, BaseModel) else []
            continue
        keys.append(part)
        models += [kind] if isinstance(kind, type) and issubclass(kind, BaseModel) else []
    return keys, models


def _label(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))
