"""The scripts as users run them, and their files as verl reads them."""

import importlib.util
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from agent_rl.data import check_file, read_parquet
from agent_rl.data.arithmetic import ARITHMETIC
from agent_rl.data.conversion import run
from agent_rl.data.service_dialogues import SERVICE_DIALOGUES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def run_script(name, *arguments, **environment):
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "data_preprocess" / name), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


SCRIPTS = sorted(path.name for path in (ROOT / "data_preprocess").glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_short_and_says_what_it_takes(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ROOT / "data_preprocess" / name
    assert len(path.read_text().splitlines()) <= 40
    assert importlib.util.find_spec(path.stem) is None, "Python finds a script of this name before the module"
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == 0
    said = capsys.readouterr().out
    if name != "check_data.py":  # the only one that writes no rows
        assert all(option in said for option in ("--local_save_dir", "--local_dir", "--seed", "--agent_name"))


def test_rows_of_a_generated_world(tmp_path):
    sizes = ("--train_size", 5, "--test_size", 4)
    result = run_script("generated_world.py", "--world", "text_to_sql", "--local_save_dir", tmp_path, *sizes)
    assert result.stdout.splitlines() == [f"{split}: {size} rows in {tmp_path / split}.parquet"
                                          for split, size in (("test", 4), ("train", 5))]  # fmt: skip
    (row, *_) = read_parquet(tmp_path / "train.parquet")
    assert row["agent_name"] == "react_agent"
    unknown = run_script("generated_world.py", "--world", "text_to_sq")
    assert "Did you mean 'text_to_sql'" in unknown.stderr


def test_rows_of_a_recipes_environments(tmp_path):
    config = f"""\
hydra: {{searchpath: ["pkg://verl.trainer.config", "pkg://agent_rl.config"]}}
defaults: [agent, _self_]
data: {{train_files: "{tmp_path}/train.parquet", val_files: "{tmp_path}/held_out.parquet"}}
agent_rl: {{environments: {{lockers: "{ROOT}/recipes/lockers/lockers.py"}}}}
"""
    (tmp_path / "config.yaml").write_text(config)
    result = run_script("environment.py", tmp_path, "--agent_name", "tool_call_agent")
    assert result.stdout.splitlines() == [
        f"{split}: {size} rows in {tmp_path / name}.parquet"
        for split, size, name in (("train", 2000, "train"), ("test", 256, "held_out"))
    ]
    (row, *_) = read_parquet(tmp_path / "held_out.parquet")
    assert (row["agent_name"], row["extra_info"]["environment"]) == ("tool_call_agent", "lockers")
    assert "gsm8k_calculator has no environment" in run_script("environment.py", "gsm8k_calculator").stderr
    (tmp_path / "config.yaml").write_text(config.replace(f'"{tmp_path}/train.parquet"', "[a.parquet, b.parquet]"))
    assert "the files for train: expected one path, got [" in run_script("environment.py", tmp_path).stderr


def test_programs_are_tried_and_what_fails_is_left_out_and_counted(tmp_path):
    right = "def f(x):\n    return x + 1"
    tests = {
        "kept": "def test():\n    assert f(1) == 2",
        "the published solution fails": "def test():\n    assert f(1) == 3",
        "a stub passes": "def test():\n    f(1)",
        "unknown": "def test(tmp_path):\n    assert f(1) == 2",
    }
    lines = [json.dumps({"question": name, "test": test, "solution": right}) for name, test in tests.items()]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    result = run_script("code_problems.py", "--input", tmp_path / "train.jsonl", "--local_save_dir", tmp_path)
    assert result.stdout.splitlines() == [
        f"train: 1 rows in {tmp_path / 'train.parquet'}",
        "omitted: 1 rows, functions that return None pass their tests",
        "omitted: 1 rows, the published solution fails their tests",
        "omitted: 1 rows, their tests cannot be run",
    ]
    assert [row["extra_info"]["question"] for row in read_parquet(tmp_path / "train.parquet")] == ["kept"]


@pytest.mark.parametrize("data_set", [ARITHMETIC, SERVICE_DIALOGUES], ids=lambda each: each.name)
def test_generated_rows_have_two_splits_and_the_seed_decides(data_set, tmp_path, capsys):
    def made(seed):
        sizes = ["--train_size", "30", "--test_size", "10"]
        run(data_set, None, [*sizes, "--seed", str(seed), "--local_save_dir", str(tmp_path)])
        assert f"train: 30 rows in {tmp_path}/train.parquet\ntest: 10 rows in" in capsys.readouterr().out
        check_file(tmp_path / "test.parquet")
        return read_parquet(tmp_path / "train.parquet"), read_parquet(tmp_path / "test.parquet")

    train, test = made(1)
    assert made(1) == (train, test)
    assert made(2) != (train, test)
