"""Every command of every page runs, in a folder that has the files that the pages speak of.

`train` composes its configuration (with `--dry-run`): what a training run does is tested in e2e/ and recipes/. What
needs a network, a GPU or another machine is listed in `ELSEWHERE` with its reason, or with the tests that run it.
"""

import contextlib
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent_rl.cli.main import app
from agent_rl.data import arithmetic, write_parquet
from tests.docs.pages import PAGES, ROOT, Command, block, commands
from tests.support.cli import shown
from tests.support.forks import EXTENDED, FORKS
from tests.support.http_faults import FaultyServer, answer
from tests.support.openai_server import completion

pytestmark = [pytest.mark.slow, pytest.mark.trainer]

ELSEWHERE = {
    r"\. \.venv": "the environment is there",
    r"(\.venv-gpu|python -m venv|export AGENT_RL_GPU|(bash )?tests/gpu/run.sh)": "a GPU node",
    r"bash tests/gpu/pack.sh": "an environment of 11 GB; tests/gpu/test_pack.py",
    r"python data_preprocess/(text_to_sql|tool_calls|code_problems.*problems)": "a published set; tests/data",
    r"python data_preprocess/(preference_pairs|helpsteer2)": "a published set; tests/reasoning_rm/test_sample.py",
    r"python data_preprocess/math_dataset.*(svamp|retool)": "a published set; tests/data",
    r"(git clone|(uv |\S+/bin/)?pip install|python -m sglang|export (SANDBOX|HF_HOME))": "a network",
    r"python data_preprocess/(gsm8k_multi|full_hh|geo3k)": "a network",
    r"hf download": "15 GB",
    r"(export AGENT_RL_REWARD|curl|agent-rl reward serve|\{)": "tests/rewards/service",
    r"ray (job|start)": "a cluster; tests/e2e/test_nodes.py starts one",
    r"agent-rl .*(outputs/mine|mine\.jsonl|rows/|export VERL_PLATFORM)": "tests/e2e/test_tutorial.py",
    r"agent-rl (why|compare|judge try|eval outputs)": "tests/e2e/test_tutorial.py, tests/cli, tests/evaluation",
    r"agent-rl data convert --hub": "a network",
    r"curl -s \$AGENT_RL_GATEWAY": "tests/agents/sessions/test_server.py",
    r"agent-rl (play|train) my_trl.py": "tests/environments/test_trl.py, tests/cli",
    r"agent-rl (play|train) openenv:": "a Python of its own; tests/environments/families/test_openenv.py",
    r"agent-rl (play|train) gymnasium:my_worlds.py": "tests/environments/families/test_gymnasium.py",
    r"agent-rl certify algo --estimator": "tests/verl_adapter/certificates",
    r"agent-rl certify run": "tests/evaluation/test_run_certificate.py, tests/e2e/test_training.py",
    r"agent-rl gateway check": "tests/conformance",
    r"(python -m agent_rl.environments.install|make programs)": "a network",
    r"(outputs/environments/verifiers/bin/python|agent-rl data convert (sums|tasks))": "tests/e2e/test_verifiers.py",
    r"agent-rl train tau2": "a Python of its own; tests/environments/families/test_tau2.py",
    r"python data_preprocess/environment.py service": "tau2's own Python; tests/data_preprocess/test_scripts.py",
    r"agent-rl view": "tests/trajectory/viewer/test_serve.py",
    r"agent-rl doctor": "tests/cli/test_doctor.py, and the composition below",
    r"agent-rl eval .*checkpoints": "a checkpoint; tests/e2e/test_evaluation.py",
    r"agent-rl eval .*gateway_agent": "an endpoint; tests/evaluation/test_runner.py",
    r"agent-rl rm eval": "a judge; tests/cli/test_rm.py",
    r"agent-rl (eval --recipe sums|trace|.*outputs/my_run)": "a run's own files; tests/e2e and tests/cli",
    r"agent-rl (export|model)": "a run's own checkpoint, a file of 98 MB; tests/trajectory/exports",
    r"agent-rl (sft|experiment)": "minutes of training; tests/evaluation/experiments, and the recipes' results",
    r"agent-rl train .*--predict": "a run of the CPU version; tests/evaluation/test_prediction.py",
    r"touch outputs": "tests/e2e/test_stops.py",
    r"pytest sums": "tests/launch/test_starting_points.py",
    r"(bash recipes/\w+/run.sh|agent-rl train [\w/]+)$": "tests/recipes, tests/launch/test_starting_points.py",
}
"""Patterns of commands that do not run here: why, or where they do."""


def elsewhere(command: Command) -> str | None:
    return next((reason for pattern, reason in ELSEWHERE.items() if re.match(pattern, " ".join(command.words))), None)


ALL = list(dict.fromkeys(command for page in PAGES for command in commands(page)))
HERE = [command for command in ALL if elsewhere(command) is None]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The scripted policy of tests.support.openai_server, under any model's name."""

    def reply(handler: Any) -> None:
        models = {"data": [{"id": "Qwen2.5-3B-Instruct"}]}
        answer(200, completion(json.loads(handler.body)) if handler.command == "POST" else models)(handler)

    with FaultyServer(default=reply) as server:
        yield server.url


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the repository's files, and with those that a reader has made."""
    folder = tmp_path_factory.mktemp("workshop")
    for name in ("recipes", "tool_configs", "data_preprocess", "Makefile", "agent_rl", "requirements"):
        (folder / name).symlink_to(ROOT / name)
    for split, seed in (("train", 0), ("test", 1)):
        rows = [arithmetic.to_row(each, split, i) for i, each in enumerate(arithmetic.generate(seed, 4))]
        write_parquet(rows, folder / f"{split}.parquet")
        (folder / f"{split}.jsonl").write_text('{"problem": "1+1?", "solution": "\\\\boxed{2}"}\n')
    for name, page, language in (
        ("my_tools.py", "docs/guides/tools.md", "python"),
        ("my_tools.yaml", "docs/guides/tools.md", "yaml"),
        ("lockers.py", "README.md", "python"),
        ("my_agent.py", "docs/guides/any_agent.md", "python"),
        ("my_agents.py", "docs/guides/agents.md", "python"),
        ("my_trainer.py", "docs/guides/trainer.md", "python"),
    ):
        (folder / name).write_text(block(page, language, name))
    (folder / "problems.csv").write_text("question,answer\n" + "".join(f"{i}+1?,{i + 1}\n" for i in range(40)))
    (folder / "databases").mkdir()
    with contextlib.closing(sqlite3.connect(folder / "databases/shop.sqlite")) as database:
        database.execute("create table items (price int)")
    example = {"question": "How many items?", "query": "select count(*) from items", "db_id": "shop"}
    (folder / "dev.json").write_text(json.dumps([example]))
    return folder


def trajectories(folder: Path) -> None:
    """The traces, made once by the tiny model."""
    run = folder / "outputs/gsm8k_calculator"
    if run.is_dir():
        return
    words = "eval --data test.parquet --tools tool_configs/calculator.yaml --model recipes/quickstart/model"
    more = "policy=local -n 2 limit=2 agent_rl.trace.tokens=true sampling.max_response_tokens=64"
    shown(*shlex.split(f"{words} {more} --out {run}"))
    for path in run.glob("trajectories*.jsonl"):
        shutil.copy(path, run / path.name.replace("trajectories", "trace"))
    shutil.copy(run / "trace.jsonl", folder / "trajectories.jsonl")
    (run / "metrics.jsonl").write_text('{"step": 1, "data": {"critic/score/mean": 0.5, "agent/correctness": 0.5}}\n')
    for name in ("first", "second"):
        shutil.copytree(run, folder / "outputs" / name)


def run_here(words: list[str], environment: dict[str, str]) -> str:
    """Run a command of `agent-rl` in this process."""
    done = CliRunner(env=environment).invoke(app, words, catch_exceptions=False)
    assert done.exit_code in (0, 1) if "attack" in words else done.exit_code == 0, (words, done.output[-2000:])
    return done.stdout


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("command", HERE, ids=lambda command: str(command)[:80])
def test_it_runs(command: Command, workshop: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workshop)
    monkeypatch.setenv("HOME", str(workshop))
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    for name, value in command.environment:
        monkeypatch.setenv(name, value)
    words = [word.replace("http://127.0.0.1:8000", endpoint).replace("$PWD", str(workshop)) for word in command.words]
    words, target = (words[: words.index(">")], words[-1]) if ">" in words else (words, "")
    output = ""
    if words[0] == "make":
        subprocess.run(["make", "-n", "-C", str(ROOT), *words[1:]], check=True, capture_output=True)
    elif words[0] == "python":
        subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True, text=True)
    elif words[0] == "bash":
        output = train(workshop, words[1].removesuffix("/run.sh"), words[2:])
    elif words[1] == "train":
        output = train(workshop, words[2], words[3:])
    else:
        output = run_here(prepared(workshop, words[1:]), dict(command.environment))
    if target:
        (workshop / target).write_text(output)
        assert output


def train(folder: Path, recipe: str, words: list[str]) -> str:
    """Compose a run's configuration."""
    if "--out" in words:  # of the quickstart
        del words[words.index("--out") : words.index("--out") + 2]
    if recipe == "sums" and not (folder / "sums").exists():
        run_here(["new", "recipe", "sums"], {})
    done = CliRunner().invoke(app, ["train", recipe, *[word for word in words if word != "--dry-run"], "--dry-run"])
    if "trainer.nnode=2" in words:  # which the page shows with its error
        assert "Did you mean 'trainer.nnodes'" in str(done.exception)
        return ""
    assert done.exit_code == 0, done.output[-2000:]
    return done.stdout


def prepared(folder: Path, words: list[str]) -> list[str]:
    """The words, when the files that they name are there; what takes long is bounded."""
    if words[0] in ("reward", "audit", "report"):
        trajectories(folder)
    if words[:2] == ["recipes", "copy"]:
        shutil.rmtree(folder / words[-1], ignore_errors=True)
    if words[0] == "new":
        shutil.rmtree(folder / words[2], ignore_errors=True)
    if words[0] == "eval":
        words += ["--out", f"outputs/eval/{len(list(folder.glob('outputs/eval/*')))}"]
        words += ["limit=1", "sampling.max_response_tokens=32"] if "policy=local" in words else []
    return words


@pytest.mark.parametrize("command", [each for each in ALL if each.words[:2] == ("agent-rl", "doctor")], ids=str)
def test_what_the_doctor_is_asked_about_composes(
    command: Command, workshop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workshop)
    train(workshop, command.words[2], [word for word in command.words[3:] if word != "--json"])


def test_a_loop_of_your_own(tmp_path: Path) -> None:
    """A program of a page, as those in test_examples.py, which need no process that has imported verl."""
    script = block("docs/guides/agents.md", "python", "my_train.py").split('if __name__ == "__main__"')[0]
    (tmp_path / "my_train.py").write_text(script)
    check = (
        "import sys\nfrom agent_rl.agents.registry import load_script, registered\nload_script(sys.argv[1])\n"
        "import verl.experimental.agent_loop.agent_loop as a\nfrom hydra.utils import get_class\n"
        "assert get_class(a._agent_loop_registry['my_agent']['_target_']) is registered['my_agent']\n"
    )
    done = FORKS.run(check, str(tmp_path / "my_train.py"), mode=EXTENDED)
    assert done.returncode == 0, done.stderr
