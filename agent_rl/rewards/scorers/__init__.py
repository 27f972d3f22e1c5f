"""Scorers: functions that compare an answer with the row's ground truth; every file in this folder is imported.

A scorer must not depend on trajectories, components or the configuration. `@built_in(name, *data_sources)` registers a
function in `SCORERS`; `agent_rl.rewards.routing` chooses the scorer for a data source.
"""

from agent_rl.rewards.scorers.scorer import (
    SCORERS,
    GroundTruthError,
    Result,
    Scorer,
    ScorerFunction,
    score_answer,
    score_now,
    unusable,
)
from agent_rl.settings.importing import import_all

__all__ = ["SCORERS", "GroundTruthError", "Result", "Scorer", "ScorerFunction", "score_answer", "score_now", "unusable"]

import_all(__name__)
