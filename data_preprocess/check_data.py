"""Check data files before training and print statistics, like `agent-rl data check`.

python data_preprocess/check_data.py train.parquet test.parquet
"""

from __future__ import annotations

import sys

from agent_rl.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "check"]
    main()
