"""The scripts as users run them, and their files as verl reads them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_rl.data import check_parquet, read_parquet

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GSM8K = ROOT.parent / "shared/data" / "gsm8k"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
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


def write_examples(folder, count=3):
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text(f"{json.dumps(EXAMPLE)}\n" * count)
    return folder


def tiny_tokenizer(texts):
    """A byte-level BPE tokenizer with a ChatML template, trained on the texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>", chat_template=CHATML
    )


def verl_dataset(path, cache_dir, monkeypatch, **config):
    """verl's own dataset over one file, with its caches in a folder of the test."""
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("verl", reason="verl is not installed")
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache_dir / "datasets")
    tokenizer = tiny_tokenizer([row["extra_info"]["question"] for row in read_parquet(path)])
    settings = {"cache_dir": str(cache_dir / "verl"), "filter_overlong_prompts_workers": None, **config}
    return RLHFDataset(str(path), tokenizer, OmegaConf.create(settings))


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
        check_parquet(path)


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
        check_parquet(path)
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
    assert "Use --local_dataset_path" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.trainer
def test_verl_reads_the_rows_as_the_contract_says(tmp_path, monkeypatch):
    run_script("arithmetic.py", "--local_save_dir", tmp_path, "--train_size", 20, "--test_size", 5)
    dataset = verl_dataset(tmp_path / "train.parquet", tmp_path / "cache", monkeypatch, max_prompt_length=256)
    rows = read_parquet(tmp_path / "train.parquet")
    assert len(dataset) == 20
    for number, row in enumerate(rows):
        item = dataset[number]
        assert item["raw_prompt"] == row["prompt"]
        assert item["index"] == number
        assert item["tools_kwargs"] == item["interaction_kwargs"] == {}
        assert {key: item[key] for key in ("data_source", "agent_name", "reward_model", "extra_info")} == {
            key: row[key] for key in ("data_source", "agent_name", "reward_model", "extra_info")
        }


@pytest.mark.trainer
def test_verl_passes_tool_arguments_on_and_drops_long_prompts(tmp_path, monkeypatch):
    from agent_rl.data import make_row, write_parquet

    base = {"data_source": "shop/sums", "ground_truth": "7", "split": "train", "tool_selection": ["search"]}
    kwargs = {"search": {"create_kwargs": {"index": "wiki"}}}
    questions = ["3 + 4?", "What is the sum of these? " + "1 + " * 200 + "1"]
    rows = [make_row(question=text, index=i, tools_kwargs=kwargs, **base) for i, text in enumerate(questions)]
    write_parquet(rows, tmp_path / "train.parquet")
    dataset = verl_dataset(tmp_path / "train.parquet", tmp_path / "cache", monkeypatch, max_prompt_length=100)
    assert len(dataset) == 1
    assert dataset[0]["tools_kwargs"] == kwargs
    assert dataset[0]["extra_info"]["tool_selection"] == ["search"]


def test_datasets_joins_files_of_several_sources(tmp_path):
    datasets = pytest.importorskip("datasets")
    run_script("arithmetic.py", "--local_dir", tmp_path / "sums", "--train_size", 4, "--test_size", 2)
    source = write_examples(tmp_path / "source")
    run_script("gsm8k_multiturn_w_tool.py", "--local_dataset_path", source, "--local_save_dir", tmp_path / "gsm8k")
    parts = [
        datasets.load_dataset(
            "parquet",
            data_files=str(tmp_path / name / "train.parquet"),
            split="train",
            cache_dir=str(tmp_path / "cache"),
        )
        for name in ("sums", "gsm8k")
    ]
    assert len(parts[0]) == 4
    assert parts[1][0]["prompt"] == [{"role": "user", "content": EXAMPLE["question"]}]
    both = datasets.concatenate_datasets(parts)
    assert both["data_source"][:] == ["agent_rl/arithmetic"] * 4 + ["openai/gsm8k"] * 3
