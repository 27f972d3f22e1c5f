"""Write UltraFeedback, for training under a reward model, as files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.preferences import ULTRAFEEDBACK

if __name__ == "__main__":
    run(ULTRAFEEDBACK, __doc__)
