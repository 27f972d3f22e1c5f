"""Write problems of a generator of reasoning-gym as files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.reasoning_gym import REASONING_GYM

if __name__ == "__main__":
    run(REASONING_GYM, __doc__)
