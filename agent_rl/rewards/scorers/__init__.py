"""One file for each family of scorers, and `SCORERS`, under whose names a configuration finds them.

All are pure functions of the answer, the ground truth and the row's `extra_info`, but for those that need a process:
they give an awaitable. See `agent_rl.rewards.routing` for which data source is judged by which.
"""

from agent_rl.rewards.scorers.choice import score_choice
from agent_rl.rewards.scorers.code import score_code, score_code_all
from agent_rl.rewards.scorers.gsm8k import score_gsm8k, score_gsm8k_strict
from agent_rl.rewards.scorers.json_schema import score_json_schema
from agent_rl.rewards.scorers.math.math_answer import score_math
from agent_rl.rewards.scorers.qa import score_qa_em, score_qa_f1, score_qa_substring
from agent_rl.rewards.scorers.scorer import (
    GroundTruthError,
    Result,
    Scorer,
    ScorerFunction,
    score_answer,
    score_now,
    unusable,
)
from agent_rl.rewards.scorers.sql_match import score_sql_match
from agent_rl.rewards.scorers.text_rules import score_text_rules
from agent_rl.rewards.scorers.tool_match import score_tool_match, score_tool_match_all

__all__ = ["SCORERS", "GroundTruthError", "Result", "Scorer", "ScorerFunction", "score_answer", "score_now", "unusable"]

_QUICK: dict[str, ScorerFunction] = {
    "gsm8k": score_gsm8k,
    "gsm8k_strict": score_gsm8k_strict,
    "math": score_math,
    "geo3k": score_math,
    "qa_em": score_qa_em,
    "qa_f1": score_qa_f1,
    "qa_substring": score_qa_substring,
    "choice": score_choice,
    "code": score_code,
    "code_all": score_code_all,
}
_SLOW: dict[str, ScorerFunction] = {
    "tool_match": score_tool_match,
    "tool_match_all": score_tool_match_all,
    "sql_match": score_sql_match,
    "json_schema": score_json_schema,
    "text_rules": score_text_rules,
}
SCORERS = {
    **{name: Scorer(name, function, inline=True) for name, function in _QUICK.items()},
    **{name: Scorer(name, function) for name, function in _SLOW.items()},
}
"""What `agent_rl.reward.correctness.scorer` can name."""
