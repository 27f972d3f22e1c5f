"""The `agent_rl:` section of a configuration as pydantic models, and the code that makes configuration errors.

This package does not depend on verl, nor on the code that the settings configure.
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
