"""Convert UltraFeedback to files of rows for training with a reward model."""

from agent_rl.data.conversion import run
from agent_rl.data.preferences import ULTRAFEEDBACK

if __name__ == "__main__":
    run(ULTRAFEEDBACK, __doc__)
