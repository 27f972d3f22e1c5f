"""Write APPS, TACO, CodeContests, HumanEval, LeetCode, KodCode or MBPP as files of rows."""

from agent_rl.data.code import CODE
from agent_rl.data.conversion import run

if __name__ == "__main__":
    run(CODE, __doc__)
