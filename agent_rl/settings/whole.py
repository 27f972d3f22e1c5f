"""The whole `agent_rl:` section of a hydra configuration, as typed settings.

Every key has a default, so the section may be absent. An unknown key or a value of the wrong type is a `ConfigError`
that names the full key and the nearest known name. The section repeats no key of verl:
`actor_rollout_ref.rollout.multi_turn.max_assistant_turns` limits turns, `data.max_response_length` limits tokens, and
`actor_rollout_ref.rollout.multi_turn.tool_config_path` is the tool file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from agent_rl.settings.agents import (
    CodeActSettings,
    FoldingSettings,
    PlanActSettings,
    ReactSettings,
    SearchSettings,
    UserSimSettings,
)
from agent_rl.settings.algorithms import GigpoSettings
from agent_rl.settings.cold_start import ColdStartSettings
from agent_rl.settings.data import DataSettings
from agent_rl.settings.episode import (
    BudgetSettings,
    FinalTurnSettings,
    PolicySettings,
    RunSettings,
    ThinkingSettings,
    ToolsSettings,
    TraceSettings,
)
from agent_rl.settings.errors import Place, validated
from agent_rl.settings.gateway import GatewaySettings
from agent_rl.settings.reward import RewardSettings
from agent_rl.settings.section import Section

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
    """What to exclude from the loss if a turn has neither call nor answer, because it is malformed or the token budget
    cut it off. `turn`: only that turn. `trajectory`: all turns of the trajectory."""
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
    def from_config(cls, config: Mapping[str, Any] | Any, file: Path | None = None) -> AgentRLSettings:
        """Read the section from a whole trainer configuration (a mapping or an omegaconf DictConfig).

        Args:
            config: the configuration; None means the defaults.
            file: the YAML file with the section, if known; errors name its lines.

        Raises:
            ConfigError: a value cannot be used; the error names key, value and remedy.
        """
        section = config.get(SECTION) if config is not None else None
        return cls() if section is None else validated(cls, _plain(section), Place(file=file) / SECTION)


def _plain(value: Any) -> Any:
    """Convert omegaconf's containers to plain ones, with interpolations resolved, without importing omegaconf."""
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in value}
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return value
    return [_plain(item) for item in value]
