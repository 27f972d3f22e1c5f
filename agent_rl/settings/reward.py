"""The `agent_rl.reward` section: the components of the trajectory reward, and how they are combined."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, Field, field_validator, model_validator

from agent_rl.settings.errors import InvalidValueError, Section

Normalization = Literal["group", "sigmoid", "tanh"] | Annotated[list[float], Field(min_length=2, max_length=2)]
_COMPARISONS = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}

_CONDITION = re.compile(
    r"\s*(?P<name>[\w.-]+)\s*(?P<how>>=|<=|==|!=|>|<)\s*(?P<number>[-+]?[0-9.]+(?:e[-+]?[0-9]+)?)\s*"
)


class Condition(NamedTuple):
    """One comparison in a gate, met if `holds(value, number)` is true for the value of the component `name`."""

    name: str
    holds: Callable[[float, float], bool]
    number: float


Gate = tuple[Condition, ...]


class Schedule(Section):
    """A weight that changes linearly from `start` to `end` between two training steps, and then stays at `end`."""

    start: float
    """Weight up to `from_step`."""
    end: float
    """Weight from `to_step` onward, and in offline scoring, which has no training steps."""
    to_step: int = Field(ge=1)
    """Training step at which the weight reaches `end`."""
    from_step: int = Field(default=0, ge=0)
    """Training step at which the weight starts to change."""

    @model_validator(mode="after")
    def _ordered(self) -> Schedule:
        if self.to_step <= self.from_step:
            problem = f"to_step={self.to_step} is not after from_step={self.from_step}"
            raise InvalidValueError(problem, "Set a later to_step")
        return self

    def at(self, step: int | None) -> float:
        """Return the weight at a training step; None means the final weight."""
        if step is None or step >= self.to_step:
            return self.end
        share = max(0.0, (step - self.from_step) / (self.to_step - self.from_step))
        return self.start + share * (self.end - self.start)


class TermSettings(Section):
    """Settings for how a component enters the total reward."""

    weight: float | Schedule = 1.0
    """Weight of the value in the total, or a schedule over training steps. With 0, the component is only measured and
    logged."""
    normalize: Normalization | None = None
    """How the value is scaled before clipping. `[low, high]` maps this range to the range from 0 to 1. `group` computes
    the z-score among the samples of the prompt. `sigmoid` and `tanh` apply the functions of these names."""
    clip: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    """Range `[low, high]` to which the value is clipped."""
    gate: str | None = None
    """Condition under which the component is measured, for example `correctness >= 1 and format == 0`."""

    @field_validator("normalize", "clip")
    @classmethod
    def _ordered(cls, value: Any) -> Any:
        if isinstance(value, list) and not value[0] < value[1]:
            raise InvalidValueError("the first number must be below the second", "Write [low, high]")
        return value

    @field_validator("gate")
    @classmethod
    def _parses(cls, value: str | None) -> str | None:
        parse_gate(value)
        return value

    def weight_at(self, step: int | None) -> float:
        """Return the weight at a training step."""
        return self.weight.at(step) if isinstance(self.weight, Schedule) else self.weight


class ComponentSettings(TermSettings):
    """A component in addition to the components that every reward has."""

    kind: str
    """A built-in kind, or your own `Component` subclass as `package.module.Class` or `file.py:Class`."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Settings for a component of this kind."""


def parse_gate(text: str | None) -> Gate:
    """Parse a gate into its conditions, all of which must be met.

    Raises:
        ValueError: the text does not consist of comparisons such as `name >= number`, joined by `and`.
    """
    conditions = []
    for part in [] if text is None else re.split(r"\band\b", text):
        match = _CONDITION.fullmatch(part)
        if match is None:
            remedy = "Write a comparison such as `correctness >= 1`, and join several with `and`"
            raise InvalidValueError(f"{part.strip()!r} is not a comparison of a component with a number", remedy)
        conditions.append(Condition(match["name"], _COMPARISONS[match["how"]], float(match["number"])))
    return tuple(conditions)


TERMS = ("correctness", "efficiency", "format", "overlong")
"""Names of the components that every reward has."""


class CorrectnessSettings(TermSettings):
    """Settings for the `correctness` component, which is 1 for the right answer and 0 otherwise."""

    scorer: str | dict[str, Any] = "auto"
    """`auto`, a scorer's name, a mapping with its name and options, such as `{name: math, strict: true}`,
    `file.py:function`, or `none`. `auto` means a simulated user's verdict or, without a simulated user, the scorer of
    the row's data_source."""


class _NamedTermSettings(TermSettings):
    """A component that every reward logs, and that counts toward the total if any of its keys is set."""

    weight: float | Schedule = 0.0
    """Weight of the value in the total, or 0 to only log it. The default is 1 if another key of this section is set."""
    _counted: ClassVar[float] = 1.0

    @model_validator(mode="before")
    @classmethod
    def _counts(cls, section: Any) -> Any:
        """If any key is set, also set the weight, so that copies and merged sections keep it."""
        return {"weight": cls._counted, **section} if isinstance(section, Mapping) and section else section


class EfficiencySettings(_NamedTermSettings):
    """A penalty for the resources that an episode used: the sum of several penalties, but never below `floor`."""

    penalty: float = Field(default=0.1, ge=0)
    """Penalty for each tool call beyond `free_calls`."""
    free_calls: int = Field(default=3, ge=0)
    """Number of free tool calls in an episode."""
    floor: float = Field(default=-0.5, le=0)
    """Lowest value of the component."""
    per_error: float = Field(default=0.0, ge=0)
    """Penalty for each call that fails (an exception, a timeout, wrong arguments or an unknown tool) or is skipped."""
    per_repeat: float = Field(default=0.0, ge=0)
    """Penalty for each call that repeats an earlier one."""
    per_1000_tokens: float = Field(default=0.0, ge=0)
    """Penalty per 1,000 response tokens (sampled or observed), applied pro rata."""


class FormatSettings(_NamedTermSettings):
    """A penalty of `-malformed_turns / turns`, but never below -1; well-formed turns do not change it."""

    weight: float | Schedule = 0.0
    """Weight of the value in the total, or 0 to only log it. The default is 0.2 if another key here is set."""
    _counted: ClassVar[float] = 0.2
    turns: int = Field(default=3, ge=1)
    """Number of malformed turns at which the value is -1."""


class OverlongSettings(_NamedTermSettings):
    """A penalty that grows from 0 to `-penalty` over the last `buffer_tokens` before `data.max_response_length`."""

    penalty: float = Field(default=0.0, ge=0)
    """Penalty for an episode that uses the whole response length. 0 turns the penalty off."""
    buffer_tokens: int | None = Field(default=None, ge=1)
    """Number of tokens over which the penalty grows. Null means a fifth of `data.max_response_length`."""


def _usable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise InvalidValueError("the name becomes part of a Ray actor's name", "Use the characters A-Z a-z 0-9 . _ -")
    return name


ServedModelName = Annotated[str, AfterValidator(_usable)]


class ServedModelSettings(Section):
    """One reward model that the run serves. All other engine settings are in `reward.reward_model.rollout`."""

    path: str
    """Folder of the model, or its name on the Hub."""
    kind: Literal["discriminative", "generative"] = "discriminative"
    """`discriminative`: the model's head outputs a number. `generative`: the model writes its judgment."""
    engine: Literal["sglang", "vllm"] = "sglang"
    """Engine that serves the model."""
    placement: Literal["own", "shared"] = "own"
    """`own`: the model has GPUs in addition to the trainer's. `shared`: the model uses the trainer's GPUs, where it is
    loaded after sampling and unloaded after scoring, before the update."""
    n_gpus_per_node: int = Field(default=1, ge=1)
    """Number of the model's own GPUs per node. A `shared` model has one replica for every `tensor_parallel_size` GPUs
    of the trainer."""
    nnodes: int = Field(default=1, ge=1)
    """Number of the model's own nodes, each with `n_gpus_per_node` GPUs."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """Number of GPUs over which one replica of the model is split."""
    gpu_memory_utilization: float = Field(default=0.5, gt=0, lt=1)
    """Share of each GPU's memory for the weights and the cache."""
    temperature: float = Field(default=0.0, ge=0)
    """Temperature of a generative model, unless the component sets its own."""
    max_model_len: int | None = Field(default=None, ge=1)
    """Maximum sequence length in tokens. Null means the model's own limit."""
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Additional arguments of the engine's server."""

    @property
    def visits(self) -> bool:
        """Whether the model uses the trainer's GPUs, and therefore can score only while the policy is not sampling."""
        return self.placement != "own"


class RewardSettings(Section):
    """The components of the trajectory reward, and how they are combined."""

    combine: str = "sum"
    """`sum` adds up the weighted values. Your own function, written as `package.module.function` or `file.py:function`,
    gets (values, weights, trajectory)."""
    correctness: CorrectnessSettings = CorrectnessSettings()
    efficiency: EfficiencySettings = EfficiencySettings()
    format: FormatSettings = FormatSettings()
    overlong: OverlongSettings = OverlongSettings()
    components: dict[str, ComponentSettings] = Field(default_factory=dict)
    """Additional components, under names that you choose and that appear in the logs."""
    reward_api: str | dict[str, Any] | None = None
    """Address of a reward service that computes `correctness`, for example `http://host:8080/get_reward2`, or the whole
    config of the `reward_api` component."""
    per_data_source: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Overrides for keys of this section, by data source. Shell wildcards are allowed, and the first match applies."""
    max_unscored_share: float = Field(default=0.5, ge=0, le=1)
    """Share of a step's trajectories that may be unscored. A larger share stops the run."""
    on_error: Literal["stop", "unscored"] = "stop"
    """The effect of an exception in a scorer, a component or `combine`. `stop`: the run stops and shows the line in
    your file. `unscored`: the trajectory gets no score, as after `UnscoredError`, timeouts and failed connections."""
    models: dict[ServedModelName, ServedModelSettings] = Field(default_factory=dict)
    """Reward models that the run itself serves, by name."""

    @field_validator("combine")
    @classmethod
    def _combines(cls, value: str) -> str:
        if value != "sum" and "." not in value:
            remedy = "Write sum, or your own function of (values, weights, trajectory): file.py:function"
            raise InvalidValueError("unknown way to combine the components", remedy)
        return value

    @field_validator("components")
    @classmethod
    def _named(cls, value: dict[str, ComponentSettings]) -> dict[str, ComponentSettings]:
        for name in value:
            if name in TERMS or not name.isidentifier():
                raise InvalidValueError(f"a component cannot have the name {name!r}", "Choose a name like `helpful`")
        return value
