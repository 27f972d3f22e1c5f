"""Convert Spider, BIRD, SkyRL-SQL or sql-eval, with their databases, to files of rows."""

from agent_rl.data.conversion import run
from agent_rl.data.text_to_sql import TEXT_TO_SQL

if __name__ == "__main__":
    run(TEXT_TO_SQL, __doc__)
