"""Write problems from a reasoning-gym generator to files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.reasoning_gym import REASONING_GYM

if __name__ == "__main__":
    run(REASONING_GYM, __doc__)
