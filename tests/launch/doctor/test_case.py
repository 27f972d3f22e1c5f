from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.launch.doctor.case import Case


def test_values_are_plain_and_resolved() -> None:
    case = Case(config=OmegaConf.create({"a": {"b": [1, "${c}"]}, "c": 2, "none": None}))
    assert case.get("a") == {"b": [1, 2]}
    assert case.get("none", 7) == 7
    assert case.get("not.there", 7) == 7
    assert Case(config=None).get("a", 7) == 7


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    case = Case(config=OmegaConf.create({"data": {"files": "${oc.env:NO_SUCH_VARIABLE}/x"}}))
    with pytest.raises(ConfigError, match=r"data\.files: .*NO_SUCH_VARIABLE"):
        case.get("data.files")


def test_paths_begin_in_the_folder_and_names_stay(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    case = Case(folder=tmp_path)
    assert case.path("here") == str(tmp_path / "here")
    assert case.path("Qwen/Qwen2.5-3B-Instruct") == "Qwen/Qwen2.5-3B-Instruct"
    assert case.shown(tmp_path / "here") == "here"
    assert case.shown("/elsewhere/x") == "/elsewhere/x"


def test_only_files_of_this_machine_are_read(parquet: Path) -> None:
    files = [str(parquet), "s3://bucket/x.parquet"]
    case = Case(config=OmegaConf.create({"data": {"train_files": files, "val_files": str(parquet)}}))
    assert [table.path for table in case.train] == [str(parquet)]
    assert case.val[0].count == 12


def test_of_a_large_file_the_first_rows_are_read(parquet: Path) -> None:
    (table,) = Case(config=OmegaConf.create({"data": {"train_files": str(parquet)}}), most_rows=5).train
    assert (table.count, len(table.rows)) == (12, 5)
