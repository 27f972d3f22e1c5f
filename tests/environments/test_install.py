"""The separate Python of a family: what is reported if it cannot be created."""

from pathlib import Path

import pytest

from agent_rl.environments.install import FOLDER, install
from agent_rl.errors import ConfigError


def test_the_error_gives_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with pytest.raises(ConfigError, match=r"bfcl: its packages cannot be installed: .*No such file.*absent/python"):
        install("bfcl", str(tmp_path / "absent" / "python"))
    with pytest.raises(ConfigError, match=r"bfcl: .*'-m', 'venv'.*non-zero exit status 1\. See the output above"):
        install("bfcl", "/bin/false")
