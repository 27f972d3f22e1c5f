"""Mathematical answers, read in many notations and compared by value; knows no trajectory and no data source.

`latex` unifies spellings and knows units, `expression` parses one expression, `value` evaluates it, `forms` says what
kind of thing an answer is, `same` compares two forms, `worker` asks math-verify. `numeric` reads plain numbers.
"""

from agent_rl.rewards.scorers.math.math_answer import score_math

__all__ = ["score_math"]
