"""Convert Natural Questions, TriviaQA, HotpotQA or Search-R1's data to files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.search_qa import SEARCH_QA

if __name__ == "__main__":
    run(SEARCH_QA, __doc__)
