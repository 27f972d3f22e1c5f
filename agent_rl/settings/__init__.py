"""Pydantic models of a configuration's `agent_rl:` section, and the code that creates configuration errors.

This package depends neither on verl nor on the code that the settings configure.
"""

from agent_rl.settings.data import DataSettings
from agent_rl.settings.reward import (
    TERMS,
    CorrectnessSettings,
    EfficiencySettings,
    FormatSettings,
    OverlongSettings,
    RewardSettings,
)
from agent_rl.settings.sections import SECTION, AgentRLSettings, BudgetSettings, GigpoSettings, ReactSettings

__all__ = [
    "SECTION",
    "TERMS",
    "AgentRLSettings",
    "BudgetSettings",
    "CorrectnessSettings",
    "DataSettings",
    "EfficiencySettings",
    "FormatSettings",
    "GigpoSettings",
    "OverlongSettings",
    "ReactSettings",
    "RewardSettings",
]
