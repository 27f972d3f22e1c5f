"""The section `agent_rl:` of a configuration as pydantic models; knows neither verl nor what it configures."""

from agent_rl.settings.sections import (
    SECTION,
    TERMS,
    AgentRLSettings,
    BudgetSettings,
    CassetteSettings,
    CorrectnessSettings,
    EfficiencySettings,
    FormatSettings,
    LexicographicSettings,
    OverlongSettings,
    ReactSettings,
    RewardSettings,
    config_error,
)

__all__ = [
    "SECTION",
    "TERMS",
    "AgentRLSettings",
    "BudgetSettings",
    "CassetteSettings",
    "CorrectnessSettings",
    "EfficiencySettings",
    "FormatSettings",
    "LexicographicSettings",
    "OverlongSettings",
    "ReactSettings",
    "RewardSettings",
    "config_error",
]
