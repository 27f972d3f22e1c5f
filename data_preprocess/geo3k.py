"""Write Geometry3K, for a single answer without tools, as files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.geo3k import GEO3K

if __name__ == "__main__":
    run(GEO3K, __doc__)
