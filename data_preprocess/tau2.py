"""Write tasks of tau2-bench as files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.tau2 import TAU2

if __name__ == "__main__":
    run(TAU2, __doc__)
