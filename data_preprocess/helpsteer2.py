"""Convert HelpSteer2 to files of rows for training with a reward model."""

from agent_rl.data.conversion import run
from agent_rl.data.preferences import HELPSTEER2

if __name__ == "__main__":
    run(HELPSTEER2, __doc__)
