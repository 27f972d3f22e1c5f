"""Convert Geometry3K to files of rows for single answers without tools."""

from agent_rl.data.conversion import run
from agent_rl.data.geo3k import GEO3K

if __name__ == "__main__":
    run(GEO3K, __doc__)
