"""Write generated dialogues with customers of a small shop to train.parquet and test.parquet."""

from agent_rl.data.conversion import run
from agent_rl.data.service_dialogues import SERVICE_DIALOGUES

if __name__ == "__main__":
    run(SERVICE_DIALOGUES, __doc__)
