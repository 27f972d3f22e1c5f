"""What SGLang's processes are forked from: `multiprocessing` starts them as before, with the libraries imported."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent_rl.cpu import engine_forks, forked_python
from tests.support.processes import wait_until

SCRIPT = """
import json, multiprocessing, os, signal, sys, threading, time

def child(writer):
    import ctypes, psutil
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # as SGLang does: they end with their parent
    parent = psutil.Process().parent()
    print("said", flush=True)
    writer.send({
        "torch": "torch" in sys.modules, "new": os.environ.get("NEW"), "folder": os.getcwd(), "parent": parent.pid,
        "threads": sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None,
    })
    if sys.argv[1] == "fails":
        while not os.path.exists("found"):
            time.sleep(0.02)
        parent.send_signal(signal.SIGQUIT)
    time.sleep(60)

if __name__ == "__main__":
    from agent_rl.cpu import engine_forks
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    os.environ.update(NEW="1", OMP_NUM_THREADS="3")
    multiprocessing.set_start_method("spawn")
    with open("output", "w") as output:
        os.dup2(output.fileno(), 1)  # as Ray does
    engine_forks.use()
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=child, args=(writer,))
    signal.signal(signal.SIGQUIT, lambda *_: (open("told", "w").close(), os._exit(0)))
    process.start()
    found = {**reader.recv(), "me": os.getpid(), "pid": process.pid}
    open("found.part", "w").write(json.dumps(found)); os.rename("found.part", "found")
    while True:
        time.sleep(0.05)
"""


@pytest.fixture
def start(tmp_path: Path, server: dict[str, str]) -> Any:
    (tmp_path / "script.py").write_text(SCRIPT)

    def run(what: str, **environment: str) -> dict[str, Any]:
        command = [sys.executable, "-I", "-S", forked_python.__file__, str(tmp_path / "script.py"), what]
        subprocess.run(
            command, env={**os.environ, "RAY_AUTH_MODE": "token", **server, **environment}, cwd=tmp_path, check=True
        )
        wait_until((tmp_path / "found").exists, 60)
        found: dict[str, Any] = json.loads((tmp_path / "found").read_text())
        return found

    return run


def test_a_process_has_the_libraries_and_what_the_server_has_changed_and_ends_with_it(start, tmp_path: Path) -> None:
    found = start("stays", **{engine_forks.ENGINE: "1"})
    assert (found["torch"], found["new"], found["threads"], found["folder"]) == (True, "1", 3, str(tmp_path))
    assert (tmp_path / "output").read_text() == "said\n"
    assert psutil.Process(found["parent"]).ppid() == found["me"]
    left = [psutil.Process(found["parent"]), psutil.Process(found["pid"])]
    os.kill(found["me"], signal.SIGKILL)
    assert psutil.wait_procs(left, 10)[1] == []


def test_it_tells_the_server_of_a_failure(start, tmp_path: Path) -> None:
    found = start("fails", **{engine_forks.ENGINE: "1"})
    wait_until((tmp_path / "told").exists, 60)
    assert psutil.wait_procs([psutil.Process(pid) for pid in (found["pid"],) if psutil.pid_exists(pid)], 10)[1] == []


def test_another_worker_has_no_copy(start) -> None:
    found = start("stays")
    assert (found["torch"], found["parent"]) == (False, found["me"])
    os.kill(found["me"], signal.SIGKILL)
