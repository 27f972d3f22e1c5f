"""Write rows of your own data set: a CSV, JSON, JSONL or parquet file, or a set of the hub, by a mapping of columns."""

from agent_rl.data.conversion import run
from agent_rl.data.from_file import FROM_FILE

if __name__ == "__main__":
    run(FROM_FILE, __doc__)
