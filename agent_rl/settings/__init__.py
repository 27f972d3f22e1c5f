"""The section `agent_rl:` of a configuration as pydantic models, and the one way a configuration error is made.

It must not know verl, nor what the settings configure.
"""

from agent_rl.settings.agents import ReactSettings
from agent_rl.settings.data import DataSettings
from agent_rl.settings.episode import BudgetSettings
from agent_rl.settings.reward import (
    TERMS,
    CorrectnessSettings,
    EfficiencySettings,
    FormatSettings,
    OverlongSettings,
    RewardSettings,
)
from agent_rl.settings.whole import SECTION, AgentRLSettings

__all__ = [
    "SECTION",
    "TERMS",
    "AgentRLSettings",
    "BudgetSettings",
    "CorrectnessSettings",
    "DataSettings",
    "EfficiencySettings",
    "FormatSettings",
    "OverlongSettings",
    "ReactSettings",
    "RewardSettings",
]
