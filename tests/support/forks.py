"""Code that runs in a process of its own and finds verl imported: a fork of a Python that imported it once.

A new interpreter that imports verl takes eight CPU-seconds, a fork some hundredths. A *mode* is a set of environment
variables with the statements that are run under them first; its process is forked from one that has imported the
libraries that verl stands on, and nothing of verl or agent_rl, so what these do when they are imported happens in each
mode. `python tests/support/forks.py` is the server, which reads a request a line and answers with a line.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent.parent
LIBRARIES = "import datasets, hydra, numpy, pandas, peft, ray, tensordict, torch, torchdata, transformers"


@dataclass(frozen=True)
class Mode:
    """Environment variables (None removes one), and statements that every piece of code of the mode finds done."""

    environment: Mapping[str, str | None]
    preload: str = "import verl"

    def request(self) -> dict[str, Any]:
        return {"environment": dict(self.environment), "preload": self.preload}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


class Forks:
    """The client: starts the server when it is first needed, and ends it with this process at the latest."""

    def __init__(self, libraries: str = LIBRARIES, environment: Mapping[str, str] | None = None) -> None:
        self.libraries, self.environment = libraries, environment
        self.server: subprocess.Popen[str] | None = None

    def run(self, code: str, *arguments: str, mode: Mode | None = None, timeout_s: float = 120) -> Done:
        """Run the code as `python -c code arguments` does, in the mode or with the libraries alone."""
        if self.server is None:
            command = [sys.executable, "-W", "ignore", __file__, self.libraries]
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.server = subprocess.Popen(command, text=True, cwd=ROOT, env=self.environment, **pipes)
            atexit.register(self.close)
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        request = {"code": code, "arguments": arguments, "mode": mode and mode.request(), "timeout_s": timeout_s}
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return Done(**json.loads(self.server.stdout.readline()))

    def close(self) -> None:
        if self.server is not None:
            self.server.communicate()  # it ends with its input


TRAINER = "verl.trainer.ppo.v1.trainer_base, verl.trainer.ppo.v1.agent_loop_tq, verl.experimental.reward_loop"
EXTENDED = Mode({"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_PLUGINS": "auto"}, f"import verl, {TRAINER}")
PLAIN = Mode({"VERL_PLATFORM": "", "VERL_USE_EXTERNAL_PLUGINS": "none"}, f"import verl, {TRAINER}")
FORKS = Forks()


def python(code: str, *, plugins: str = "auto") -> str:
    """The last line that the code prints, with our plugin on a CPU or with verl alone."""
    done = FORKS.run(code, mode=PLAIN if plugins == "none" else EXTENDED)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def agent_rl(*words: object, mode: Mode = EXTENDED, timeout_s: float = 240) -> Done:
    """The command `agent-rl`, which finds verl imported."""
    return FORKS.run("from agent_rl.cli.main import main; main()", *map(str, words), mode=mode, timeout_s=timeout_s)


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer until the input ends: with a fork of this process, or of one of the modes that were forked from it."""
    modes: dict[str, tuple[IO[str], IO[str]]] = {}
    for line in requests:
        request = json.loads(line)
        mode = request.pop("mode")
        if mode is None:
            answer = json.dumps(fork(**request)) + "\n"
        else:
            key = json.dumps(mode)
            if key not in modes:
                modes[key] = fork_server(**mode, inherited=[end for pair in modes.values() for end in pair])
            its_requests, its_answers = modes[key]
            its_requests.write(json.dumps({**request, "mode": None}) + "\n")
            its_requests.flush()
            answer = its_answers.readline()
        answers.write(answer)
        answers.flush()
    for its_requests, its_answers in modes.values():
        its_requests.close()
        its_answers.read()
    while modes and os.wait():
        modes.popitem()


def fork_server(environment: dict[str, str | None], preload: str, inherited: list[IO[str]]) -> tuple[IO[str], IO[str]]:
    """The two ends by which a new mode is asked."""
    to_read, to_write = os.pipe(), os.pipe()
    if os.fork() == 0:
        for end in (to_read[1], to_write[0], *(each.fileno() for each in inherited)):
            os.close(end)
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        with os.fdopen(to_read[0]) as requests, os.fdopen(to_write[1], "w") as answers:
            prepare(preload)
            serve(requests, answers)
        os._exit(0)
    os.close(to_read[0])
    os.close(to_write[1])
    return os.fdopen(to_read[1], "w"), os.fdopen(to_write[0])


def prepare(preload: str) -> None:
    """What fails here fails each piece of code that is run here."""
    global broken
    try:
        exec(preload, {"__name__": "__main__"})  # noqa: S102 - statements of the tests
    except Exception:
        broken = traceback.format_exc()


broken = ""


def fork(code: str, arguments: list[str], timeout_s: float) -> dict[str, Any]:
    """Status and output of the code."""
    if broken:
        return {"returncode": 1, "stdout": "", "stderr": broken}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            execute(code, arguments)
        status = wait(pid, timeout_s)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return {"returncode": status, "stdout": texts[0], "stderr": texts[1]}


def execute(code: str, arguments: list[str]) -> None:
    """Never returns."""
    status = 0
    sys.argv = ["-c", *arguments]
    try:
        exec(code, {"__name__": "__main__"})  # noqa: S102 - statements of the tests
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def wait(pid: int, timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, 9)
        time.sleep(0.005)


if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # as with `python -c`
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what modules print when they are imported is no answer
    prepare(sys.argv[1])
    serve(sys.stdin, answers)
