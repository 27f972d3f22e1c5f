"""Write BFCL, RLLA (ToolRL) or xLAM as files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.tool_calls import TOOL_CALLS

if __name__ == "__main__":
    run(TOOL_CALLS, __doc__)
