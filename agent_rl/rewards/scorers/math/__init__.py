"""Mathematical answers: read in many notations, and compared by value; knows no trajectory."""

from agent_rl.rewards.scorers.math.math_answer import score_math

__all__ = ["score_math"]
