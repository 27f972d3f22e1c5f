"""Convert MATH, MATH-500, DAPO-Math, DeepMath, AIME, SVAMP or ReTool-SFT to files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.math_dataset import MATH_DATASET

if __name__ == "__main__":
    run(MATH_DATASET, __doc__)
