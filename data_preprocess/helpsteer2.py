"""Write HelpSteer2, for training under a reward model, as files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.preferences import HELPSTEER2

if __name__ == "__main__":
    run(HELPSTEER2, __doc__)
