"""Write GSM8K as train.parquet and test.parquet, for a single answer without tools."""

from agent_rl.data.conversion import run
from agent_rl.data.gsm8k import GSM8K

if __name__ == "__main__":
    run(GSM8K, __doc__)
