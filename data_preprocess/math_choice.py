"""Convert MathQA, MMLU, MMLU-Pro or ARC to files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.math_choice import MATH_CHOICE

if __name__ == "__main__":
    run(MATH_CHOICE, __doc__)
