"""Convert JudgeBench, or your own preferences, to files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.preferences import PREFERENCE_PAIRS

if __name__ == "__main__":
    run(PREFERENCE_PAIRS, __doc__)
