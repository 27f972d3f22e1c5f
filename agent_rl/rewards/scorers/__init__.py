"""Scorers: whether an answer is right by the row's ground truth; a file a family, found by being here.

They know no trajectory, component or configuration. A function becomes a scorer by `@built_in(name, *data_sources)`,
and all are in `SCORERS`; `agent_rl.rewards.routing` says which data source is judged by which.
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
