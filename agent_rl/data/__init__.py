"""Data: the row contract that verl and the agent loops read, its checks, and converters of data sets into rows.

`rows` holds the contract; each data set has a module. They must not know verl, or which tools and agents exist;
importing them loads neither pyarrow nor datasets.
"""

from agent_rl.data import arithmetic, gsm8k, service_dialogues
from agent_rl.data.rows import check_parquet, check_rows, make_row, read_parquet, write_parquet

__all__ = [
    "arithmetic",
    "check_parquet",
    "check_rows",
    "gsm8k",
    "make_row",
    "read_parquet",
    "service_dialogues",
    "write_parquet",
]
