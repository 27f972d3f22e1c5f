"""What the end-to-end tests share: a tiny model, a way to find every process of a run, and what a run must leave
alone."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer

MARK = "AGENT_RL_TEST_RUN"
FindProcesses = Callable[[], list[psutil.Process]]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model of 0.1 M parameters that fits GSM8K's prompts with the agent's instructions."""
    folder = tmp_path_factory.mktemp("tiny_model")
    make_model(folder, make_tokenizer(CORPUS, folder, 512), hidden=48, layers=2, heads=4, max_positions=4096)
    return folder


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a Llama: a second family, and one whose weights SGLang can be asked for by name."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("tiny_llama")
    tokenizer = make_tokenizer(CORPUS, folder, 512)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    LlamaForCausalLM(config).float().save_pretrained(folder)
    return folder


@pytest.fixture
def run_processes() -> Iterator[FindProcesses]:
    """Finds the processes of this test's run, none of which may be left."""
    with marked_run() as find:
        yield find
        assert find() == []


@contextmanager
def marked_run(**environment: str) -> Iterator[FindProcesses]:
    """A run on a CPU, with these variables: finds its processes by one that they all inherit, and ends them."""
    mark = uuid4().hex

    def find() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"VERL_PLATFORM": "cpu", MARK: mark, **environment}.items():
            patch.setenv(name, value)
        try:
            yield find
        finally:
            for process in find():  # of a failed test
                process.kill()


def gone(find: Callable[[], list[psutil.Process]], within_s: float) -> list[str]:
    """Waits until no process is left; the command lines of those that are after all."""
    deadline = time.monotonic() + within_s
    while (left := find()) and time.monotonic() < deadline:
        time.sleep(0.25)
    return [" ".join(process.cmdline())[:100] for process in left if process.is_running()]


class Outside:
    """Where a run must leave nothing behind: its folder for temporary files, the home directory, shared memory.

    Other programs use /tmp and shared memory meanwhile: the run gets a folder of its own, with a path so short that
    Ray's sockets fit in it, and of shared memory only what no process has mapped counts.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.temporary = Path(tempfile.mkdtemp(prefix="t"))
        patch.setattr(tempfile, "tempdir", str(self.temporary))
        self.before = self.files()

    def files(self) -> set[str]:
        places = [Path("/dev/shm"), Path.home(), Path.home() / ".ray", self.temporary]
        return {str(path) for place in places if place.is_dir() for path in place.iterdir()}

    def left(self) -> set[str]:
        mapped = []
        for maps in Path("/proc").glob("[0-9]*/maps"):
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                mapped.append(maps.read_text())
        return {path for path in self.files() - self.before if path not in "".join(mapped)}
