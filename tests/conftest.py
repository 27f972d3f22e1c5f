"""Before anything imports verl: the platform, and where caches go. Nothing here imports verl or torch by itself."""

import asyncio
import gc
import inspect
import os
import secrets
import sys
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from tests.support import cost, groups, light, profiles

ROOT = Path(__file__).parents[1]

os.chdir(ROOT)  # tests name files as a reader of the repository does
os.environ.setdefault("VERL_PLATFORM", "cpu")
os.environ.setdefault("HF_HOME", str(ROOT / "outputs" / "cache"))
os.environ.setdefault("RAY_worker_niceness", "0")  # otherwise all other tests come before those that wait for Ray
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # otherwise Ray keeps one in the home directory


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--light", action="store_true", help="fail tests that import verl, torch, ray or transformers")


def pytest_configure(config: pytest.Config) -> None:
    profiles.load()
    if config.getoption("--light"):
        light.install()
    if cost.FOLDER in os.environ and not (config.getoption("numprocesses", None) or config.getoption("collectonly")):
        config.pluginmanager.register(cost.Recorder(Path(os.environ[cost.FOLDER])))


TRAINERS_FIXTURES = {"builder", "compose", "configs", "model_dir", "run_loop", "tiny_llama", "tiny_model", "tokenizer"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What imports the trainer at its top is not even collected with `--light`."""
    if not config.getoption("--light"):
        return None
    if collection_path.is_dir():
        return f"{collection_path.relative_to(ROOT)}/" in groups.TRAINERS_FOLDERS or None
    return bool(groups.DECLARED.search(collection_path.read_text())) or None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Folder and fixtures say what a test needs."""
    of_the_trainer = str(item.path.relative_to(ROOT)).startswith(groups.TRAINERS_FOLDERS)
    if of_the_trainer or TRAINERS_FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.trainer)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own, or in that of its open sandbox."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    do = arguments["box"].do if "box" in arguments else asyncio.run
    do(pyfuncitem.obj(**arguments))
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest starts first."""
    items.sort(key=lambda item: groups.rank(item.path))


def pytest_collection_finish() -> None:
    """What tests and modules are made of stays: garbage collections, which tests ask for, need not look at it."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # at exit, libraries look for what is left


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> groups.Groups | None:
    return groups.scheduler(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.fixture(autouse=True, scope="module")
def _no_scorers_process_is_left() -> Iterator[None]:
    """What scorers keep for the process they run in is not for other tests, which count processes."""
    yield
    for name, close in (("rewards.scorers.scorer", "close_background"), ("sandbox.workers", "_close_all")):
        module = sys.modules.get(f"agent_rl.{name}")
        if module is not None:
            attrgetter(close)(module)()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The test's own folder, as the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def quick_delays(monkeypatch):
    """Short pauses between the attempts of a request."""
    monkeypatch.setattr("agent_rl.remote.http.FIRST_DELAY_S", 0.01)
    monkeypatch.setattr("agent_rl.remote.http.JITTER_S", 0.0)
    monkeypatch.setattr("agent_rl.sandbox.fusion._PAUSE_S", 0.0)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    """A tiny untrained Qwen2 with its tokenizer."""
    from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer

    folder = tmp_path_factory.mktemp("tiny")
    make_model(folder, make_tokenizer(CORPUS, folder), hidden=8, layers=1, heads=2)
    return folder


@pytest.fixture(scope="session")
def tokenizer(model_dir):
    from verl.utils import hf_tokenizer

    return hf_tokenizer(str(model_dir))


@pytest.fixture(scope="session")
def builder(tokenizer):
    """verl's own, as its agent loops make it for this model."""
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    return create_continuous_token_builder(tokenizer, hf_model_type="qwen2")


@pytest.fixture(scope="session")
def compose(model_dir):
    """The configuration that verl's trainer would run with."""
    import hydra

    @cache
    def composed(*overrides):
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            return hydra.compose(
                "ppo_trainer",
                overrides=[
                    "actor_rollout_ref.rollout.name=sglang",
                    f"actor_rollout_ref.model.path={model_dir}",
                    "data.max_prompt_length=1024",
                    "data.max_response_length=512",
                    *overrides,
                ],
            )

    return lambda *overrides: deepcopy(composed(*overrides))


@pytest.fixture
def run_loop(compose, tokenizer):
    """Makes a loop as verl's worker does and runs it over one row; what it gave, and the server."""
    from tests.agents.server import Server, make_loop

    def run(name, *turns, overrides=(), tools=None, **row):
        server = Server(tokenizer, *turns)
        row = {"raw_prompt": [{"role": "user", "content": "Question?"}], "uid": "u", "session_id": 0, **row}

        async def inside():
            loop = make_loop(compose(*overrides), server, tokenizer, name=name, tools=tools)
            return await loop.run({"temperature": 1.0, "logprobs": True}, **row)

        return asyncio.run(inside()), server

    return run
