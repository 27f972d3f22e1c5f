"""Parses mathematical answers in many notations, and compares them by value; code here must not depend on trajectories.

`latex` normalizes spellings and units, `expression` parses an expression with the calculator's grammar, `value`
compares the values of two expressions, `forms` parses any answer, `same` compares two parsed answers, and `worker`
calls math-verify. `numeric` parses plain numbers.
"""

from agent_rl.rewards.scorers.math.math_answer import score_math

__all__ = ["score_math"]
