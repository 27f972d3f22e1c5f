"""Convert BFCL, RLLA (ToolRL) or xLAM to files of rows.

BFCL's answers must be next to its questions, as NAME_answers.json or in possible_answer/NAME.
"""

from agent_rl.data.conversion import run
from agent_rl.data.tool_calls import TOOL_CALLS

if __name__ == "__main__":
    run(TOOL_CALLS, __doc__)
