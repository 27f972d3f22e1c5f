"""Write generated customers of a small shop as train.parquet and test.parquet."""

import argparse
import sys
from pathlib import Path

from agent_rl.data import service_dialogues, write_parquet
from agent_rl.errors import ConfigError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--local_save_dir", "--local_dir", default="~/data/service_dialogues", help="default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--train_size", type=int, default=5000, help="customers, default: %(default)s")
    parser.add_argument("--test_size", type=int, default=500, help="customers, default: %(default)s")
    parser.add_argument("--agent_name", default="user_sim_agent", help="agent loop of the rows, default: %(default)s")
    args = parser.parse_args()
    try:
        for split, size in {"train": args.train_size, "test": args.test_size}.items():
            rows = service_dialogues.rows(args.seed, split, size, agent_name=args.agent_name)
            path = Path(args.local_save_dir).expanduser() / f"{split}.parquet"
            write_parquet(rows, path)
            print(f"{split}: {len(rows)} rows in {path}")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
