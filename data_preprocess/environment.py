"""Write the rows of a recipe's environments as the recipe's training and validation files."""

import argparse
import sys
from pathlib import Path

from agent_rl.data import write_parquet
from agent_rl.environments import load_environment
from agent_rl.environments.kind import environment_rows
from agent_rl.errors import AgentRLError, ConfigError
from agent_rl.launch.composition import compose
from agent_rl.settings import AgentRLSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", help="Folder with config.yaml, or the name of a recipe")
    parser.add_argument("--local_save_dir", "--local_dir", help="Output folder, default: the recipe's data folder")
    parser.add_argument("--seed", type=int, default=0, help="Random seed for generated rows, default: %(default)s")
    parser.add_argument("--agent_name", help="Agent loop for the rows, default: the run's default")
    args = parser.parse_args()
    try:
        config = compose(args.recipe, [])
        kinds = [load_environment(*item) for item in AgentRLSettings.from_config(config).environments.items()]
        if not kinds:
            raise ConfigError("agent_rl.environments", f"{args.recipe} has no environment", "Name another recipe")
        for split, file in (("train", config.data.train_files), ("test", config.data.val_files)):
            if not isinstance(file, str):
                raise ConfigError(f"the files for {split}", f"expected one path, got {file}", "Write one path")
            path = Path(args.local_save_dir or Path(file).parent).expanduser() / Path(file).name
            rows = [row for kind in kinds for row in environment_rows(kind, split, args.seed)]
            write_parquet([row | ({"agent_name": args.agent_name} if args.agent_name else {}) for row in rows], path)
            print(f"{split}: {len(rows)} rows in {path}")
    except AgentRLError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
