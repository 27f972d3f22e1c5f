"""Write the rows of a generated world to train.parquet and test.parquet, next to the files for the world's tools."""

import argparse
import sys
from pathlib import Path

from agent_rl.data import write_parquet
from agent_rl.data.worlds import load_world, world_names
from agent_rl.errors import ConfigError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", required=True, help=f"Name of the world: {', '.join(world_names())}")
    parser.add_argument("--local_save_dir", "--local_dir", help="Output folder, default: ~/data/<world>")
    parser.add_argument("--seed", type=int, default=0, help="Random seed, default: %(default)s")
    parser.add_argument("--train_size", type=int, default=5000, help="Number of rows, default: %(default)s")
    parser.add_argument("--test_size", type=int, default=500, help="Number of rows, default: %(default)s")
    parser.add_argument("--agent_name", help="Agent loop for the rows, default: the world's choice")
    args = parser.parse_args()
    try:
        world = load_world(args.world)
        folder = Path(args.local_save_dir or f"~/data/{world.name}").expanduser().absolute()
        for split, rows in world.write(folder, args.seed, {"test": args.test_size, "train": args.train_size}).items():
            rows = [{**row, "agent_name": args.agent_name or row["agent_name"]} for row in rows]
            write_parquet(rows, folder / f"{split}.parquet")
            print(f"{split}: {len(rows)} rows in {folder / split}.parquet")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
