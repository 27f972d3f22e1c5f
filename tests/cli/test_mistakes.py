"""Mistakes that people make: each message has the key or the file, the value and a remedy, before anything starts.

None of these commands reaches verl's trainer or Ray: each ends after an import and a composition, within 5 CPU seconds.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_rl.cli.main import app
from agent_rl.data import write_parquet
from agent_rl.errors import AgentRLError
from agent_rl.launch import training
from agent_rl.trajectory import Message, StopReason, Trajectory, trace
from tests.support.rows import sum_row

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TRAIN = ("train", "quickstart", f"actor_rollout_ref.model.path={ROOT}/recipes/quickstart/model")
MODEL = "actor_rollout_ref.model.path"
FILES = ("data.train_files=own.parquet", "data.val_files=own.parquet")
SCORER, REWARD = "agent_rl.reward.correctness.scorer", "agent_rl.reward"
EVAL, CLOSED = ("eval", "--data", "own.parquet", "--model", "m", f"{SCORER}=math"), ("--endpoint", "http://127.0.0.1:1")

MISTAKES: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("trian",), ("trian: there is no such command", "Did you mean 'train'")),
    (("train", "quikstart"), ("quikstart: there is no such folder", "Did you mean 'quickstart'?")),
    ((*TRAIN, "trainer.nnode=1"), ("trainer.nnode: unknown key", "Did you mean 'trainer.nnodes'")),
    ((*TRAIN, "algo=grop"), ("algo: there is no option 'grop'", "Did you mean 'grpo'")),
    ((*TRAIN, "trainer.total_training_steps"), ("trainer.total_training_steps", "Write key=value")),
    ((*TRAIN, "data.train_batch_size=many"), ("data.train_batch_size", "many")),
    ((*TRAIN, "actor_rollout_ref.rollout.name=vllm"), ("actor_rollout_ref.rollout.name", "vllm", "sglang")),
    ((*TRAIN, f"{REWARD}.efficency.penalty=1"), (f"{REWARD}.efficency", "Did you mean 'efficiency'?")),
    ((*TRAIN, f"{REWARD}.efficiency.penalty=much"), (f"{REWARD}.efficiency.penalty", "much")),
    ((*TRAIN[:2], *FILES, f"{SCORER}=math", f"{MODEL}=./mine"), (f"{MODEL}: there is no ./mine", "Make the model")),
    ((*TRAIN, "data.train_files=no.parquet"), ("data.train_files: there is no no.parquet", "Correct the path")),
    ((*TRAIN, "data.train_files=."), ("data.train_files: . is a folder", "Correct the path")),
    ((*TRAIN, *FILES, "data.train_files=raw.jsonl"),
     ("raw.jsonl has no prompt column, only question, answer", "agent-rl data convert raw.jsonl --prompt question")),
    ((*TRAIN, *FILES, "data.train_files=broken.jsonl"),
     ("data.train_files: ", "broken.jsonl, line 1", "Write one JSON object")),
    ((*TRAIN, *FILES, "data.val_files=raw.csv"), ("data.val_files: ", "raw.csv", "agent-rl data convert")),
    ((*TRAIN, *FILES), ("no scorer is known for 'own/from_file'", f"Set {SCORER}=NAME")),
    ((*TRAIN, *FILES, f"{SCORER}=maths"), (f"{SCORER}: there is no scorer 'maths'", "Did you mean 'math'?")),
    ((*TRAIN, *FILES, f"{SCORER}=math", f"+{REWARD}.components.polite={{kind: judge, config: {{model: m}}}}"),
     (f"{REWARD}.components.polite.config.url: missing", "http://localhost:8000")),
    ((*TRAIN, *FILES, f"{SCORER}=math", f"+{REWARD}.components.polite={{kind: judge, config: {{url: judge}}}}"),
     (f"{REWARD}.components.polite.config.url: expected", "'judge'", "http://localhost:8000")),
    ((*TRAIN, *FILES, f"{SCORER}=math", f"+{REWARD}.components.polite={{kind: juge}}"),
     (f"{REWARD}.components.polite.kind", "juge", "Did you mean 'judge'?")),
    (("eval", "--data", "own.parquet"), ("--model: no model was given", "a run's folder")),
    (("eval", "--model", "m"), ("--data: no rows were given", "--recipe NAME")),
    (("eval", "run"), ("the run run has saved no checkpoint", "trainer.save_freq=N")),
    (("eval", "nothing"), ("nothing: nothing/run.json cannot be read", "Pass a run's folder")),
    ((*EVAL, "--endpoint", "127.0.0.1"), ("endpoint", "127.0.0.1", "is not an address")),
    ((*EVAL, *CLOSED, "--loop", "react"), ("there is no agent 'react'", "Did you mean 'react_agent'?", "--script")),
    ((*EVAL, *CLOSED, "--data", "nowhere.parquet"), ("nowhere.parquet", "there is no such file")),
    (("view",), ("RUN: no run was given", "agent-rl train RECIPE")),
    (("report", "nothing"), ("nothing: there is no such file or folder", "Pass a run's folder")),
    (("why", "nothing"), ("nothing: there is no such file or folder", "Pass a run's folder")),
    (("why", "."), (".: the folder has no readable metrics (there is no such file", "Pass a run's folder")),
    (("compare", "nothing", "run"), ("nothing: there is no such file or folder", "Pass a run's folder")),
    (("compare", "run@9", "run"), ("run@9: there is no step 9", "Remove @9")),
    (("data", "check", "no.parquet"), ("no.parquet: there is no such file", "Known: ")),
    (("data", "check", "raw.jsonl"),
     ("raw.jsonl has no prompt column, only question, answer", "agent-rl data convert raw.jsonl --prompt question")),
    (("data", "show", "own.parquet", "--row", "7"), ("--row: own.parquet has no row 7", "the first row is 0")),
    (("data", "convert", "raw.jsonl", "--prompt", "qestion"), ("there is no column qestion", "It has question")),
    (("new", "recipe", "run"), ("run: the folder already exists", "Choose a new folder")),
    (("new", "tool", "my tool"), ("NAME: 'my tool'", "Use a name like 'my_tool'")),
    (("new", "tool", "calculator"), ("agent_rl already has a tool 'calculator'",)),
    (("new", "reward", "json"), ("'json' is already a module",)),
    (("new", "robot", "x"), ("KIND: unknown kind 'robot'", "Known: agent, recipe, reward, task, tool")),
    (("reward", "score", "no.jsonl"), ("no.jsonl: there is no such file or folder", "Pass the trace of a run")),
    (("reward", "score", "run/trace.jsonl", f"{SCORER}={{name: math"),
     (f"{SCORER}: '{{name: math' is not valid YAML: expected ',' or '}}'", "quote the value")),
    ((*EVAL, *CLOSED, "sampling.stop=[a"), ("sampling.stop: '[a' is not valid YAML", "quote the value")),
    (("reward", "serve", "--config", "tools.yaml", "port=[1"), ("port: '[1' is not valid YAML", "quote the value")),
    (("judge", "try", "run/trace.jsonl", "--config", "quickstart"), ("uses neither a model nor", "llm_judge")),
    (("tools", "check", "tools.yaml"), ("calculater", "calculator")),
    (("recipes", "copy", "quikstart"), ("quikstart: there is no recipe with this name", "Did you mean 'quickstart'?")),
]  # fmt: skip
"""A command line, and what its message says: the key or the file with the value, and the remedy."""


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that mistakes are made with."""
    monkeypatch.setattr(training, "run_trainer", lambda *_, **__: pytest.fail("the trainer was started"))
    write_parquet([sum_row(data_source="own/from_file")], "own.parquet")
    raw = json.dumps({"question": "1+1?", "answer": "2"})
    for name, text in (("raw.jsonl", raw), ("broken.jsonl", '{"prompt": '), ("raw.csv", "question,answer\n1+1?,2\n")):
        Path(name).write_text(f"{text}\n")
    Path("tools.yaml").write_text("tools: [{name: calculater}]")
    about = {"configuration": {"trainer": {"default_local_dir": "run/checkpoints"}}, "files": {}}
    Path("run").mkdir()
    Path("run/run.json").write_text(json.dumps(about))
    trace.append(Path("run/trace.jsonl"), Trajectory([Message("user", "1+1?")], StopReason.ANSWERED))
    return here


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("words", "parts"), MISTAKES, ids=lambda value: " ".join(value)[-60:])
def test_a_mistake_is_named_with_its_remedy(
    words: tuple[str, ...], parts: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code in (1, 2), done.output
    error = done.exception
    message = str(error) if isinstance(error, AgentRLError) else done.output + capsys.readouterr().err
    for part in parts:
        assert part in message
    assert "[Errno" not in message
    assert len(message) < 800


IN_A_PROCESS = {"trian", "trainer.nnode=1", "algo=grop", "data.train_files=raw.jsonl", f"{SCORER}=maths", "no.parquet"}
"""A word of each command whose seconds are measured."""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("words", [words for words, _ in MISTAKES if IN_A_PROCESS & {*words}], ids=lambda it: it[-1])
def test_a_mistake_is_named_within_five_seconds(words: tuple[str, ...]) -> None:
    """CPU time, which a busy machine does not change much: 2 s at most."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "agent_rl.cli.main", *words], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5
