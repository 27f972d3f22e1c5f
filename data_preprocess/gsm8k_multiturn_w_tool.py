"""Write GSM8K as train.parquet and test.parquet, for agents that solve it with tools."""

import argparse
import sys
from pathlib import Path

from agent_rl.data import gsm8k, write_parquet
from agent_rl.errors import ConfigError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--local_dataset_path",
        help="folder with train and test as .jsonl or .parquet, or one such file (a name with 'test': the test split); "
        "default: openai/gsm8k from the Hugging Face hub",
    )
    parser.add_argument(
        "--local_save_dir", "--local_dir", default="~/data/gsm8k_multiturn_w_tool", help="default: %(default)s"
    )
    parser.add_argument("--agent_name", default="react_agent", help="agent loop of the rows, default: %(default)s")
    args = parser.parse_args()
    try:
        for split, examples in gsm8k.load_examples(args.local_dataset_path).items():
            rows = [gsm8k.to_row(each, split, i, agent_name=args.agent_name) for i, each in enumerate(examples)]
            path = Path(args.local_save_dir).expanduser() / f"{split}.parquet"
            write_parquet(rows, path)
            print(f"{split}: {len(rows)} rows in {path}")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
