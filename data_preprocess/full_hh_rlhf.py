"""Convert hh-rlhf to files of rows for training with a reward model."""

from agent_rl.data.conversion import run
from agent_rl.data.preferences import FULL_HH_RLHF

if __name__ == "__main__":
    run(FULL_HH_RLHF, __doc__)
