"""Write generated arithmetic word problems to train.parquet and test.parquet."""

from agent_rl.data.arithmetic import ARITHMETIC
from agent_rl.data.conversion import run

if __name__ == "__main__":
    run(ARITHMETIC, __doc__)
