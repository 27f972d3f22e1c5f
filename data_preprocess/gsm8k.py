"""Convert GSM8K to train.parquet and test.parquet, for single answers without tools."""

from agent_rl.data.conversion import run
from agent_rl.data.gsm8k import GSM8K

if __name__ == "__main__":
    run(GSM8K, __doc__)
