"""The contract for rows that verl and the agent loops read, storage for rows, and converters for data sets.

`contract` defines the contract, `rows` makes one row, `shapes` reads rows in other formats, `storage` writes and reads
files; each data set has its own module. These modules do not depend on verl, tools or agents, and importing the modules
loads neither pyarrow nor datasets.
"""

from agent_rl.data import arithmetic, gsm8k, service_dialogues
from agent_rl.data.contract import Row, check_row, check_rows
from agent_rl.data.files import check_file, iterate_rows
from agent_rl.data.rows import make_row
from agent_rl.data.shapes import as_row
from agent_rl.data.storage import RowWriter, read_parquet, unpacked, write_parquet

__all__ = [
    "Row",
    "RowWriter",
    "arithmetic",
    "as_row",
    "check_file",
    "check_row",
    "check_rows",
    "gsm8k",
    "iterate_rows",
    "make_row",
    "read_parquet",
    "service_dialogues",
    "unpacked",
    "write_parquet",
]
