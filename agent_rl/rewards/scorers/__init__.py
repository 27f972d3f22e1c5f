"""One file for each family of scorers, and `SCORERS`, under whose names a configuration finds them.

All are pure functions of the answer, the ground truth and the row's `extra_info`, but for those that need a process:
they give an awaitable. See `agent_rl.rewards.routing` for which data source is judged by which.
"""

from agent_rl.rewards.scorers.gsm8k import score_gsm8k, score_gsm8k_strict
from agent_rl.rewards.scorers.qa import score_qa_em, score_qa_f1, score_qa_substring
from agent_rl.rewards.scorers.scorer import Result, Scorer, ScorerFunction, score_answer, score_now, unusable

__all__ = ["SCORERS", "Result", "Scorer", "ScorerFunction", "score_answer", "score_now", "unusable"]

_FUNCTIONS: dict[str, ScorerFunction] = {
    "gsm8k": score_gsm8k,
    "gsm8k_strict": score_gsm8k_strict,
    "qa_em": score_qa_em,
    "qa_f1": score_qa_f1,
    "qa_substring": score_qa_substring,
}
SCORERS = {name: Scorer(name, function, inline=True) for name, function in _FUNCTIONS.items()}
"""What `agent_rl.reward.correctness.scorer` can name."""
