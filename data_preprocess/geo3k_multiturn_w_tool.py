"""Convert Geometry3K to files of rows for agents that solve the problems with tools."""

from agent_rl.data.conversion import run
from agent_rl.data.geo3k import GEO3K_WITH_TOOL

if __name__ == "__main__":
    run(GEO3K_WITH_TOOL, __doc__)
