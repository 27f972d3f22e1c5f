"""The command line of a data set's script, run in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import read_parquet
from agent_rl.data.conversion import RawSet, run

Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture
def convert(tmp_path: Path) -> Callable[..., Rows]:
    """Writes the rows of each split into `out`, and reads them."""

    def converted(data_set: RawSet, *arguments: object) -> Rows:
        run(data_set, None, [*map(str, arguments), "--local_save_dir", str(tmp_path / "out")])
        return {path.stem: read_parquet(path) for path in sorted((tmp_path / "out").iterdir())}

    return converted


@pytest.fixture
def refusal(convert: Callable[..., Rows], capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What the script says of arguments that cannot be used."""

    def refused(data_set: RawSet, *arguments: object) -> str:
        with pytest.raises(SystemExit) as ended:
            convert(data_set, *arguments)
        assert ended.value.code == 2
        return capsys.readouterr().err

    return refused
