"""Convert GSM8K to train.parquet and test.parquet, for agents that solve the problems with tools."""

from agent_rl.data.conversion import run
from agent_rl.data.gsm8k import GSM8K_WITH_TOOL

if __name__ == "__main__":
    run(GSM8K_WITH_TOOL, __doc__)
