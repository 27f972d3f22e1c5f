"""What is evaluated, and how: the flags of `agent-rl eval`, and the settings after them as KEY=VALUE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field

from agent_rl.agents.policies import Sampling
from agent_rl.errors import ConfigError
from agent_rl.evaluation.prompt_keys import as_setting
from agent_rl.settings import SECTION, AgentRLSettings
from agent_rl.settings.errors import validated
from agent_rl.settings.old_keys import change_arguments, tell
from agent_rl.tools.truncation import TruncateSide

__all__ = ["EvaluationSettings", "MultiTurnSettings", "PolicyKind", "read_settings"]

PolicyKind = Literal["chat", "sglang", "vllm", "local"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class MultiTurnSettings(_Section):
    """The keys and defaults of verl's `actor_rollout_ref.rollout.multi_turn` that bound an episode."""

    max_assistant_turns: int | None = Field(default=None, ge=1)
    """Turns of the policy in one episode; null: 16."""
    max_parallel_calls: int = Field(default=1, ge=1)
    """Tool calls of one turn that are run; the others are skipped."""
    max_tool_response_length: int = Field(default=256, ge=1)
    """Characters of a tool's result that the policy is shown."""
    tool_response_truncate_side: TruncateSide = "middle"
    """Part of a longer result that is cut out."""
    format: str = "hermes"
    """Syntax of native tool calls, where the endpoint does not read them itself."""


class RewardFunctionSettings(_Section):
    """A reward function of the user instead of a scorer, under verl's name and keys."""

    path: str | None = None
    """Python file; null: the scorers of `agent_rl.reward` give `correctness`."""
    name: str = "compute_score"
    """The function in it, with any signature that training takes."""
    reward_kwargs: dict[str, Any] = {}
    """Further arguments of the function."""


class VerlRewardSettings(_Section):
    """What an evaluation reads of verl's section `reward`."""

    custom_reward_function: RewardFunctionSettings = RewardFunctionSettings()
    """A table of its own below."""


class EvaluationSettings(_Section):
    """One evaluation."""

    data: str
    """Parquet file of rows."""
    loop: str | None = None
    """Name of the agent; null: each row's `agent_name`."""
    default_loop: str | None = None
    """The agent of rows without `agent_name`; null: such rows are refused."""
    script: str | None = None
    """Training script that registers agents with `register_agent_loop`."""
    tools: str | None = None
    """YAML file of tools."""
    model: str
    """The model's name at the endpoint; without an endpoint its folder, or a checkpoint of training."""
    endpoint: str | None = None
    """Address of the server; null: one is started for `model`."""
    n: int = Field(default=1, ge=1)
    """Episodes for each row."""
    limit: int | None = Field(default=None, ge=1)
    """Number of rows, from the first; null: all."""
    seed: int | None = None
    """Seed of sampling, from which each episode derives its own; null: no seed is sent."""
    policy: PolicyKind = "chat"
    """The policy: an OpenAI-compatible endpoint, SGLang or vLLM with token ids, or transformers in this process."""
    tokenizer: str | None = None
    """Tokenizer of the policies over tokens; null: that of `model`."""
    apply_chat_template_kwargs: dict[str, Any] = {}
    """Further variables of the chat template, as `data.apply_chat_template_kwargs`; a chat endpoint is sent them as
    `chat_template_kwargs`."""
    custom_chat_template: str | None = None
    """Chat template instead of the tokenizer's, as `actor_rollout_ref.model.custom_chat_template`."""
    sampling: Sampling = Sampling()
    """How turns are sampled; a table of its own below."""
    multi_turn: MultiTurnSettings = MultiTurnSettings()
    """Limits of an episode, as verl has them; a table of its own below."""
    agent_rl: AgentRLSettings = AgentRLSettings()
    """The section of training, with the reward's weights."""
    reward: VerlRewardSettings = VerlRewardSettings()
    """What counts of verl's section of this name."""
    api_key_env: str | None = None
    """Environment variable that holds the endpoint's API key."""
    concurrency: int = Field(default=64, ge=1)
    """Episodes at one time."""
    timeout_s: float = Field(default=600, gt=0)
    """Seconds of one request."""


FREE_TO_CHANGE = ("endpoint", "api_key_env", "concurrency", "timeout_s", "data", "tools", "script")
"""Settings that may differ when an evaluation resumes; files are compared by their content."""


def read_settings(
    flags: dict[str, Any], overrides: Sequence[str], recipe: Mapping[str, Any] | None = None
) -> EvaluationSettings:
    """The settings that flags and `key=value` words give.

    Args:
        flags: of the command line.
        overrides: the words.
        recipe: values for what neither gives, see `recipe_values`.

    Raises:
        ConfigError: naming the key, the value and the remedy.
    """
    given = _words(overrides)
    for key in given.keys() & flags.keys():
        raise ConfigError(str(key), "it is given twice", f"Leave --{key} or {key}= out")
    if recipe is not None:
        given = _plain(OmegaConf.merge(OmegaConf.create(dict(recipe)), OmegaConf.create(given)))
    section = AgentRLSettings.from_config({SECTION: given.pop(SECTION, None)})
    return validated(EvaluationSettings, {**given, **flags, SECTION: section})


def _words(overrides: Sequence[str]) -> dict[str, Any]:
    overrides, notes = change_arguments([word.lstrip("+") for word in overrides], "eval")
    tell(notes)
    overrides = [as_setting(word.lstrip("+")) for word in overrides]
    for word in overrides:
        if "=" not in word:
            raise ConfigError(word, "not a setting", "Write KEY=VALUE, for example sampling.temperature=0")
    words = [f"{word}''" if word.endswith("=") else word for word in overrides]
    try:
        return _plain(OmegaConf.from_dotlist(words))
    except OmegaConfBaseException as error:
        raise ConfigError(error.full_key or "KEY=VALUE", str(error).splitlines()[0], "Correct the value") from error


def _plain(config: Any) -> dict[str, Any]:
    found: Any = OmegaConf.to_container(config, resolve=True)
    return dict(found)
