"""Convert your own data set (CSV, JSON, JSONL, parquet, or a data set on the Hub) to files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.from_file import FROM_FILE

if __name__ == "__main__":
    run(FROM_FILE, __doc__)
