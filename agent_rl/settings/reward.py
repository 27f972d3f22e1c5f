"""The components of the trajectory reward, and how the total is made of them: `agent_rl.reward`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from agent_rl.settings.errors import InvalidValueError
from agent_rl.settings.section import Section
from agent_rl.settings.terms import ComponentSettings, Schedule, TermSettings

__all__ = [
    "TERMS",
    "CorrectnessSettings",
    "EfficiencySettings",
    "FormatSettings",
    "OverlongSettings",
    "RewardSettings",
    "ServedModelSettings",
]

TERMS = ("correctness", "efficiency", "format", "overlong")
"""The components that every reward has."""


class CorrectnessSettings(TermSettings):
    """1 for the right answer, 0 otherwise."""

    scorer: str = "auto"
    """`auto`: by the row's data_source, a user's verdict first; else a scorer's name, `file.py:function`, or `none`."""


class _NamedTermSettings(TermSettings):
    """A component that every reward logs, and that counts where any of its keys is written."""

    weight: float | Schedule = 0.0
    """Factor of the value in the total; 0: logged only. Where another key of this section is written, it is 1."""
    _counted: ClassVar[float] = 1.0

    @model_validator(mode="before")
    @classmethod
    def _counts(cls, section: Any) -> Any:
        """Where keys are written, the weight becomes one of them, so that copies and merged sections keep it."""
        return {"weight": cls._counted, **section} if isinstance(section, Mapping) and section else section


class EfficiencySettings(_NamedTermSettings):
    """What an episode has used, as a penalty: the sum of the parts below, never below `floor`."""

    penalty: float = Field(default=0.1, ge=0)
    """For each tool call beyond `free_calls`."""
    free_calls: int = Field(default=3, ge=0)
    """Tool calls in an episode that cost nothing."""
    floor: float = Field(default=-0.5, le=0)
    """The lowest value."""
    per_error: float = Field(default=0.0, ge=0)
    """For each call that did not end well: an exception, a timeout, wrong arguments, no such tool, skipped."""
    per_repeat: float = Field(default=0.0, ge=0)
    """For each call that is equal to an earlier one."""
    per_1000_tokens: float = Field(default=0.0, ge=0)
    """For 1,000 response tokens, sampled and observed together; a part counts as a part."""


class FormatSettings(_NamedTermSettings):
    """Minus `malformed_turns / turns`, at least -1; a share of all turns could be diluted by turns that do nothing."""

    weight: float | Schedule = 0.0
    """Factor of the value in the total; 0: logged only. Where another key of this section is written, it is 0.2."""
    _counted: ClassVar[float] = 0.2
    turns: int = Field(default=3, ge=1)
    """Malformed turns at which the value is -1."""


class OverlongSettings(_NamedTermSettings):
    """From 0 to `-penalty` over the last `buffer_tokens` before `data.max_response_length`; off by default."""

    penalty: float = Field(default=0.0, ge=0)
    """Penalty for an episode that fills the whole response; 0: off."""
    buffer_tokens: int | None = Field(default=None, ge=1)
    """Tokens over which the penalty grows; null: a fifth of `data.max_response_length`."""


def _usable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise InvalidValueError("the name becomes part of an actor's name", "Use the characters A-Z a-z 0-9 . _ -")
    return name


ServedModelName = Annotated[str, AfterValidator(_usable)]


class ServedModelSettings(Section):
    """One served reward model; `reward.reward_model.rollout` gives every other setting."""

    path: str
    """Folder or hub name."""
    kind: Literal["discriminative", "generative"] = "discriminative"
    """`discriminative`: a model with a head that gives a number. `generative`: one that writes its judgement."""
    engine: Literal["sglang", "vllm"] = "sglang"
    """Server that runs the model."""
    placement: Literal["own", "shared"] = "own"
    """`own`: GPUs of its own, next to the trainer's. `shared`: the trainer's GPUs, into which it is loaded after
    sampling, to score, and from which it is unloaded before the update."""
    n_gpus_per_node: int = Field(default=1, ge=1)
    """GPUs of its own on each node; as a visitor it has a replica on every `tensor_parallel_size` of the trainer's."""
    nnodes: int = Field(default=1, ge=1)
    """Nodes of its own, each with `n_gpus_per_node` GPUs."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """GPUs over which each replica of the model is split."""
    gpu_memory_utilization: float = Field(default=0.5, gt=0, lt=1)
    """Share of each GPU for weights and cache."""
    temperature: float = Field(default=0.0, ge=0)
    """Temperature of a generative model, unless the component sets its own."""
    max_model_len: int | None = Field(default=None, ge=1)
    """Longest sequence in tokens; null: the model's own limit."""
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)
    """More arguments of the engine's server."""

    @property
    def visits(self) -> bool:
        """Whether it is on the trainer's GPUs, so that it can score only while the policy does not sample."""
        return self.placement != "own"


class RewardSettings(Section):
    """The components of the trajectory reward, and how the total is made of them."""

    combine: str = "sum"
    """`sum` of weight times value, or a function of yours, `package.module.function` or `file.py:function`, of
    (values, weights, trajectory)."""
    correctness: CorrectnessSettings = CorrectnessSettings()
    efficiency: EfficiencySettings = EfficiencySettings()
    format: FormatSettings = FormatSettings()
    overlong: OverlongSettings = OverlongSettings()
    components: dict[str, ComponentSettings] = Field(default_factory=dict)
    """Further components by names that you choose, under which they are logged."""
    reward_api: str | dict[str, Any] | None = None
    """Address of a reward service that gives `correctness`, for example `http://host:8080/get_reward2`; or the whole
    config of the component `reward_api`."""
    per_data_source: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By data source (with shell wildcards, the first that fits counts), keys of this section that differ there."""
    max_unscored_share: float = Field(default=0.5, ge=0, le=1)
    """Share of a step's trajectories that may go unscored; beyond it the run stops. 1: never."""
    on_error: Literal["stop", "unscored"] = "stop"
    """When a scorer, a component or `combine` raises: `stop` the run with the line of your file, or leave the
    trajectory `unscored`. `UnscoredError`, timeouts and failed connections leave it unscored in any case."""
    models: dict[ServedModelName, ServedModelSettings] = Field(default_factory=dict)
    """Reward models that the run serves itself."""

    @field_validator("combine")
    @classmethod
    def _combines(cls, value: str) -> str:
        if value != "sum" and "." not in value:
            remedy = "Write sum, or a function of yours of (values, weights, trajectory): file.py:function"
            raise InvalidValueError("there is no such way to combine the components", remedy)
        return value

    @field_validator("components")
    @classmethod
    def _named(cls, value: dict[str, ComponentSettings]) -> dict[str, ComponentSettings]:
        for name in value:
            if name in TERMS or not name.isidentifier():
                raise InvalidValueError(f"a component cannot be called {name!r}", "Choose a name like `helpful`")
        return value
