"""The tutorial, from its first command to the comparison, in a folder with the repository's recipes and tools."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, commands

pytestmark = [pytest.mark.engine, pytest.mark.recipes]

PAGE = "docs/tutorial.md"


def test_the_whole_page(tmp_path: Path) -> None:
    """All but the browser, and the part for a GPU; the model is better afterwards."""
    for name in ("recipes", "tool_configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    make_questions, reward = blocks(PAGE, "python")
    (tmp_path / "my_reward.py").write_text(reward)
    environment = os.environ | {"VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    run("-c", make_questions)
    for command in commands(PAGE):
        if command.words[1] == "doctor":  # the part for a GPU begins
            break
        if command.words[1] != "view":
            run("-m", "agent_rl.cli.main", *command.words[1:])
    found = json.loads(run("-m", "agent_rl.cli.main", "compare", "outputs/eval/before", "outputs/eval/after", "--json"))
    change = found["measures"]["correctness"]
    assert change["difference"]["low"] > 0.1
    assert change["difference"]["rows"] > 100
