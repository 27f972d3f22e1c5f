"""The settings of an evaluation: the flags of `agent-rl eval`, and the KEY=VALUE words after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import Field

from agent_rl.agents.policies import Sampling
from agent_rl.errors import ConfigError
from agent_rl.evaluation.prompt_keys import as_setting
from agent_rl.settings import SECTION, AgentRLSettings
from agent_rl.settings.errors import Section, from_words, validated
from agent_rl.settings.old_keys import change_arguments, tell
from agent_rl.tools.truncation import TruncateSide

PolicyKind = Literal["chat", "sglang", "vllm", "local"]


class MultiTurnSettings(Section):
    """The keys and defaults of verl's `actor_rollout_ref.rollout.multi_turn` that limit an episode."""

    max_assistant_turns: int | None = Field(default=None, ge=1)
    """Maximum number of policy turns per episode; null means 16."""
    max_parallel_calls: int = Field(default=1, ge=1)
    """Maximum number of tool calls to run per turn; further calls are skipped."""
    max_tool_response_length: int = Field(default=256, ge=1)
    """Maximum number of characters of a tool result that the policy sees."""
    tool_response_truncate_side: TruncateSide = "middle"
    """The part of a longer result that is removed."""
    format: str = "hermes"
    """Syntax of native tool calls, if the endpoint does not parse them."""


class RewardFunctionSettings(Section):
    """A user's reward function that replaces the scorers, configured with verl's keys."""

    path: str | None = None
    """Python file; if null, the scorers of `agent_rl.reward` compute `correctness`."""
    name: str = "compute_score"
    """Name of the function in the file, which may have any signature that training accepts."""
    reward_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Additional arguments of the function."""


class VerlRewardSettings(Section):
    """The keys of verl's `reward` section that an evaluation reads."""

    custom_reward_function: RewardFunctionSettings = RewardFunctionSettings()
    """See the table below."""


class EvaluationSettings(Section):
    """One evaluation."""

    data: str
    """Parquet file with the rows of the evaluation."""
    loop: str | None = None
    """Name of the agent for all rows; null means each row's `agent_name`."""
    default_loop: str | None = None
    """Agent for rows without `agent_name`; if null, such rows are an error."""
    script: str | None = None
    """Training script that registers agents with `register_agent_loop`."""
    tools: str | None = None
    """YAML file that lists the tools."""
    model: str
    """Name of the model at the endpoint, or a model folder or training checkpoint if there is no endpoint."""
    endpoint: str | None = None
    """Address of the server; if null, a server is started for `model`."""
    n: int = Field(default=1, ge=1)
    """Number of episodes per row."""
    limit: int | None = Field(default=None, ge=1)
    """Use only the first `limit` rows; null means all rows."""
    seed: int | None = None
    """Seed from which each episode derives its sampling seed; if null, no seed is sent."""
    policy: PolicyKind = "chat"
    """Where the policy runs: at an OpenAI-compatible endpoint, in SGLang or vLLM (token ids), or in this process."""
    tokenizer: str | None = None
    """Tokenizer for sglang, vllm and local policies; null means the tokenizer of `model`."""
    apply_chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Additional variables for the chat template, like `data.apply_chat_template_kwargs`; a chat endpoint gets them as
    `chat_template_kwargs`."""
    custom_chat_template: str | None = None
    """Chat template instead of the tokenizer's template, like `actor_rollout_ref.model.custom_chat_template`."""
    sampling: Sampling = Sampling()
    """Sampling parameters of the turns; see the table below."""
    multi_turn: MultiTurnSettings = MultiTurnSettings()
    """Limits of an episode, with verl's keys; see the table below."""
    agent_rl: AgentRLSettings = AgentRLSettings()
    """The `agent_rl` section, as in training, including the reward's weights."""
    reward: VerlRewardSettings = VerlRewardSettings()
    """The keys of verl's `reward` section that apply to an evaluation."""
    api_key_env: str | None = None
    """Environment variable that contains the endpoint's API key."""
    concurrency: int = Field(default=64, ge=1)
    """Number of episodes that run concurrently."""
    timeout_s: float = Field(default=600, gt=0)
    """Timeout of one request, in seconds."""


FREE_TO_CHANGE = ("endpoint", "api_key_env", "concurrency", "timeout_s", "data", "tools", "script")
"""Settings that may change when an evaluation resumes; files are compared by their content."""


def read_settings(
    flags: dict[str, Any], overrides: Sequence[str], recipe: Mapping[str, Any] | None = None
) -> EvaluationSettings:
    """Return the settings that flags and `key=value` words define.

    Args:
        flags: values of the command line's flags, by name.
        overrides: the `key=value` words.
        recipe: values for settings that neither a flag nor a word defines; see `recipe_values`.

    Raises:
        ConfigError: a setting is invalid; the error names the key, the value and a remedy.
    """
    values = _parse_words(overrides)
    for key in values.keys() & flags.keys():
        raise ConfigError(str(key), "the setting appears twice", f"Remove --{key} or {key}=")
    if recipe is not None:
        values = _plain(OmegaConf.merge(OmegaConf.create(dict(recipe)), OmegaConf.create(values)))
    section = AgentRLSettings.from_config({SECTION: values.pop(SECTION, None)})
    return validated(EvaluationSettings, {**values, **flags, SECTION: section})


def _parse_words(overrides: Sequence[str]) -> dict[str, Any]:
    overrides, notes = change_arguments([word.lstrip("+") for word in overrides], "eval")
    tell(notes)
    overrides = [as_setting(word.lstrip("+")) for word in overrides]
    for word in overrides:
        if "=" not in word:
            raise ConfigError(word, "this is not a setting", "Write KEY=VALUE, for example sampling.temperature=0")
    words = [f"{word}''" if word.endswith("=") else word for word in overrides]
    try:
        return _plain(from_words(words))
    except OmegaConfBaseException as error:
        raise ConfigError(error.full_key or "KEY=VALUE", str(error).splitlines()[0], "Correct the value") from error


def _plain(config: Any) -> dict[str, Any]:
    container: Any = OmegaConf.to_container(config, resolve=True)
    return dict(container)
