"""Mathematical answers, read in many notations and compared by value; they must not know trajectories.

`latex` normalizes spellings and units, `expression` parses one expression by the calculator's grammar, `value` compares
two of them by their values, `forms` finds the kind of an answer, `same` compares two forms, `worker` calls math-verify.
`numeric` reads plain numbers.
"""

from agent_rl.rewards.scorers.math.math_answer import score_math

__all__ = ["score_math"]
