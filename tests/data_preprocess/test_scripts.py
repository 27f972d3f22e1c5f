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

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GSM8K = ROOT.parent / "shared/data" / "gsm8k"
EXAMPLE = {"question": "Half of 2,000?", "answer": "2000/2 = <<2000/2=1000>>1000.\n#### 1,000"}


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


def write_examples(folder, count=3):
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text(f"{json.dumps(EXAMPLE)}\n" * count)
    return folder


def test_rows_of_a_generated_world(tmp_path):
    sizes = ("--train_size", 5, "--test_size", 4)
    result = run_script("generated_world.py", "--world", "text_world", "--local_save_dir", tmp_path, *sizes)
    assert result.stdout.splitlines() == [f"{split}: {size} rows in {tmp_path / split}.parquet"
                                          for split, size in (("test", 4), ("train", 5))]  # fmt: skip
    (row, *_) = read_parquet(tmp_path / "train.parquet")
    assert row["agent_name"] == "react_agent"
    assert (tmp_path / "household.json").is_file()
    unknown = run_script("generated_world.py", "--world", "text_word")
    assert "Did you mean 'text_world'" in unknown.stderr


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
        "left out: 1 rows, functions that return None pass their tests",
        "left out: 1 rows, the published solution fails their tests",
        "left out: 1 rows, their tests cannot be run",
    ]
    assert [row["extra_info"]["question"] for row in read_parquet(tmp_path / "train.parquet")] == ["kept"]


def test_arithmetic_writes_both_splits_and_the_seed_decides(tmp_path):
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        result = run_script(
            "arithmetic.py",
            "--local_save_dir",
            tmp_path / folder,
            "--seed",
            seed,
            "--train_size",
            30,
            "--test_size",
            10,
        )
        assert result.returncode == 0, result.stderr
        assert f"train: 30 rows in {tmp_path / folder / 'train.parquet'}" in result.stdout
        assert f"test: 10 rows in {tmp_path / folder / 'test.parquet'}" in result.stdout
    first, again, other = (read_parquet(tmp_path / folder / "train.parquet") for folder in "abc")
    assert first == again != other
    test = read_parquet(tmp_path / "a" / "test.parquet")
    assert not {row["extra_info"]["question"] for row in first} & {row["extra_info"]["question"] for row in test}
    assert [row["extra_info"]["index"] for row in test] == list(range(10))


def test_service_dialogues_writes_both_splits(tmp_path):
    arguments = ["--local_save_dir", tmp_path, "--train_size", 20, "--test_size", 5]
    result = run_script("service_dialogues.py", *arguments)
    assert result.returncode == 0, result.stderr
    for split, count in (("train", 20), ("test", 5)):
        path = tmp_path / f"{split}.parquet"
        assert f"{split}: {count} rows in {path}" in result.stdout
        check_file(path)


def test_arithmetic_says_what_is_wrong_with_an_empty_split(tmp_path):
    result = run_script("arithmetic.py", "--local_save_dir", tmp_path, "--train_size", 3, "--test_size", 0)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {tmp_path / 'test.parquet'}: there are no rows")


@pytest.mark.skipif(not GSM8K.is_dir(), reason=f"the GSM8K files are not in {GSM8K}")
def test_gsm8k_writes_the_real_data(tmp_path):
    result = run_script(
        "gsm8k_multiturn_w_tool.py", "--local_dataset_path", GSM8K, "--local_save_dir", tmp_path / "out"
    )
    assert result.returncode == 0, result.stderr
    for split, count in (("train", 7473), ("test", 1319)):
        path = tmp_path / "out" / f"{split}.parquet"
        assert f"{split}: {count} rows in {path}" in result.stdout
        check_file(path)
        rows = read_parquet(path)
        assert len(rows) == count
        assert {row["extra_info"]["split"] for row in rows} == {split}
        assert [row["extra_info"]["index"] for row in rows] == list(range(count))
        assert all(float(row["reward_model"]["ground_truth"]) >= -1e9 for row in rows)


def test_gsm8k_takes_another_agent_and_a_home_folder(tmp_path):
    source = write_examples(tmp_path / "source")
    arguments = ("--local_dataset_path", source, "--local_save_dir", "~/rows", "--agent_name", "tool_agent")
    result = run_script("gsm8k_multiturn_w_tool.py", *arguments, HOME=str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert {row["agent_name"] for row in read_parquet(tmp_path / "rows/train.parquet")} == {"tool_agent"}


def test_gsm8k_without_the_hub_names_the_way_out(tmp_path):
    result = run_script(
        "gsm8k_multiturn_w_tool.py",
        "--local_save_dir",
        tmp_path / "out",
        HF_HUB_OFFLINE="1",
        HF_HOME=str(tmp_path / "hf"),
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: openai/gsm8k: the data set cannot be loaded from the Hugging Face hub")
    assert "--local_dataset_path FOLDER" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()
