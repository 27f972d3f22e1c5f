"""The rows of an environment: from the method, or from a file next to the class."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_rl.environments import load_environment
from agent_rl.environments.kind import environment_rows, row_values
from agent_rl.errors import ConfigError
from tests.environments.sessions import lockers

TEXT = '''\
from agent_rl import Environment


class Sums(Environment):
    """Add."""

    data = "sums.jsonl"

    def reset(self, number, **row):
        self.number = number

    def add(self, number: int) -> str:
        """Add."""
        return str(self.number + number)

    def get_reward(self):
        return 0.0
'''


def rows(folder: Path, written: list[dict], split: str = "train", text: str = TEXT) -> list[dict]:
    """The rows of a class with a file of these rows."""
    (folder / "sums.py").write_text(text)
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in written))
    return environment_rows(load_environment("sums", str(folder / "sums.py")), split, seed=0)


def test_the_method_makes_rows_of_the_contract() -> None:
    made = environment_rows(lockers(), "test", seed=0)
    assert len(made) == 256
    row = made[3]
    values = row_values(row)
    assert row["prompt"] == [
        {"role": "system", "content": "Open the locker that you are asked for: look up its code, then open it."},
        {"role": "user", "content": f"Open locker {values['number']}."},
    ]
    assert values.keys() == {"prompt", "number", "code"}
    assert (row["data_source"], row["reward_model"]) == ("lockers", {"style": "environment"})
    assert "agent_name" not in row, "the run's default agent is that of the rows"
    info = row["extra_info"]
    assert (info["split"], info["index"], info["environment"]) == ("test", 3, "lockers")


def test_a_row_with_a_user_is_for_the_agent_that_talks(tmp_path: Path) -> None:
    written = [{"prompt": "Add.", "number": number, "user": {"goal": "a sum"}} for number in range(2)]
    written += [{"prompt": "Add.", "number": 2, "user": "ada"}]
    talking, _, other = rows(tmp_path, written)
    assert (talking["agent_name"], talking["extra_info"]["user"]) == ("user_sim_agent", {"goal": "a sum"})
    assert "agent_name" not in other
    assert "user" not in other["extra_info"]


def test_the_seed_chooses_the_rows() -> None:
    first, same, other = (environment_rows(lockers(), "test", seed) for seed in (0, 0, 1))
    assert first == same
    assert first != other


def test_every_eighth_row_of_a_file_is_held_out(tmp_path: Path) -> None:
    written = [{"prompt": f"Add {number}.", "number": number} for number in range(20)]
    test = [row_values(row)["number"] for row in rows(tmp_path, written, "test")]
    train = [row_values(row)["number"] for row in rows(tmp_path, written)]
    assert test == [7, 15]
    assert train == [number for number in range(20) if number not in test]


def test_the_column_split_assigns_the_rows(tmp_path: Path) -> None:
    written = [{"prompt": "Add.", "number": number, "split": "test" if number < 2 else "train"} for number in range(20)]
    assert [row_values(row)["number"] for row in rows(tmp_path, written, "test")] == [0, 1]
    assert len(rows(tmp_path, written)) == 18


def test_a_file_may_be_parquet_with_chat_messages(tmp_path: Path) -> None:
    prompt = [{"role": "system", "content": "Own."}, {"role": "user", "content": "Add."}]
    written = [{"prompt": prompt, "number": number, "list": [1, 2]} for number in range(8)]
    pq.write_table(pa.Table.from_pylist(written), tmp_path / "sums.parquet")
    (row,) = rows(tmp_path, [], "test", TEXT.replace("jsonl", "parquet"))
    assert row["prompt"] == prompt
    assert row_values(row) == {"prompt": prompt, "number": 7, "list": [1, 2]}


def test_a_missing_file_names_the_class(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(TEXT)
    with pytest.raises(ConfigError, match=r"Sums\.data \(.*sums\.py:4\): .*sums\.jsonl: there is no such file"):
        environment_rows(load_environment("sums", str(tmp_path / "sums.py")), "train", seed=0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "Add."}, r"Sums\.data, train row 0, reset \(.*sums\.py:9\): missing a required argument: 'number'"),
        ({"question": "Add.", "number": 1}, r"Sums\.data, train row 0: .* but no prompt"),
        ({"prompt": "", "number": 1}, r"sums, train row 0, column prompt.*the text is empty"),
        ({"prompt": [{"content": "x"}], "number": 1}, r"sums, train row 0, column prompt.*role"),
        ({"prompt": [], "number": 1}, r"its prompt is \[\]"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(row: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        rows(tmp_path, [row])


def test_a_value_that_is_not_data_is_refused(tmp_path: Path) -> None:
    text = TEXT.replace(
        '    data = "sums.jsonl"', '    def rows(self, split, seed):\n        yield {"prompt": "x", "number": object()}'
    )
    with pytest.raises(
        ConfigError, match=r"Sums\.rows \(.*sums\.py:7\), train row 0: .*Use text, numbers, lists and dicts"
    ):
        rows(tmp_path, [], text=text)
