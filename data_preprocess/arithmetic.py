"""Write generated arithmetic word problems as train.parquet and test.parquet."""

import argparse
import sys
from pathlib import Path

from agent_rl.data import arithmetic, write_parquet
from agent_rl.errors import ConfigError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local_save_dir", "--local_dir", default="~/data/arithmetic", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--train_size", type=int, default=5000, help="problems, default: %(default)s")
    parser.add_argument("--test_size", type=int, default=500, help="problems, default: %(default)s")
    parser.add_argument("--agent_name", default="react_agent", help="agent loop of the rows, default: %(default)s")
    args = parser.parse_args()
    train, test = arithmetic.train_test(args.seed, args.train_size, args.test_size)
    try:
        for split, problems in {"train": train, "test": test}.items():
            rows = [arithmetic.to_row(each, split, i, agent_name=args.agent_name) for i, each in enumerate(problems)]
            path = Path(args.local_save_dir).expanduser() / f"{split}.parquet"
            write_parquet(rows, path)
            print(f"{split}: {len(rows)} rows in {path}")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
