import json
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from agent_rl.launch import process as module
from agent_rl.launch.process import TrainerError, remove_unused, run_trainer, shared_files
from agent_rl.trajectory.run_files import read_metrics

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """These trainers start no Ray, whose workers would need a server on a CPU."""
    monkeypatch.delenv("VERL_PLATFORM", raising=False)


def script(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def test_metrics_and_output_are_followed_line_by_line(tmp_path: Path) -> None:
    code = (
        "import os, time, json\n"
        "print('one'); print('two')\n"
        "with open(os.environ['VERL_FILE_LOGGER_PATH'], 'ab', buffering=0) as file:\n"
        "    for step in range(3):\n"
        "        line = json.dumps({'step': step, 'data': {'x': step}}).encode()\n"
        "        file.write(line[:5]); time.sleep(0.3); file.write(line[5:] + b'\\n')\n"
    )
    seen: list[tuple[int, dict]] = []
    printed: list[str] = []
    run_trainer(
        script(code), tmp_path, on_metrics=lambda step, data: seen.append((step, data)), on_output=printed.append
    )
    assert seen == [(step, {"x": step}) for step in range(3)]
    assert printed == ["one", "two"]
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [0, 1, 2]


def test_a_failure_names_its_cause_and_the_log_and_has_the_status_of_a_shell(tmp_path: Path) -> None:
    code = (
        "print('\\x1b[36m(TaskRunner pid=7)\\x1b[0m agent_rl.errors.ConfigError: key: wrong value', flush=True)\n"
        "import os; os.kill(os.getpid(), 9)"
    )
    with pytest.raises(TrainerError, match="ConfigError: key: wrong value") as caught:
        run_trainer(script(code), tmp_path)
    assert str(tmp_path / "train.log") in str(caught.value)
    assert caught.value.status == 137


def test_metrics_of_a_run_that_goes_on_are_kept_without_the_steps_that_are_trained_again(tmp_path: Path) -> None:
    code = (
        "import os, json\n"
        "with open(os.environ['VERL_FILE_LOGGER_PATH'], 'w') as file:\n"
        "    for step in {steps}:\n"
        "        trained = {{'training/global_step': step}} if step > {start} else {{}}\n"
        "        file.write(json.dumps({{'step': step, 'data': {{'start': {start}, **trained}}}}) + '\\n')\n"
        "print('output of start {start}')\n"
    )
    for start, steps in enumerate(["(0, 1, 2)", "(1, 2, 3)"]):
        run_trainer(script(code.format(start=start, steps=steps)), tmp_path)
    kept = [(each["step"], each["start"]) for each in read_metrics(tmp_path)]
    assert kept == [(0, 0), (1, 0), (1, 1), (2, 1), (3, 1)]  # the second 1 is its validation
    assert (tmp_path / "train.log").read_text() == "output of start 0\noutput of start 1\n"


def test_the_last_metrics_before_the_launcher_was_killed_are_kept(tmp_path: Path) -> None:
    """It had read one of two steps, and was writing that line again when it was killed."""
    lines = [json.dumps({"step": step, "data": {"training/global_step": step}}) + "\n" for step in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text(lines[0] + lines[1][:9])
    (tmp_path / module.NEW_METRICS).write_text(lines[0] + lines[1] + lines[2][:9])
    code = f"import os; open(os.environ['VERL_FILE_LOGGER_PATH'], 'w').write({lines[2]!r})"
    run_trainer(script(code), tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text() == "".join(lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "train.log"]


def test_a_line_of_metrics_of_which_a_full_disk_took_a_part_does_not_end_the_run(tmp_path: Path) -> None:
    code = (
        "import json, os, resource\n"
        "lines = [json.dumps({'step': step, 'data': {}}).encode() + b'\\n' for step in (1, 2, 3, 4)]\n"
        "file = open(os.environ['VERL_FILE_LOGGER_PATH'], 'wb', buffering=0)\n"  # as verl does
        "file.write(lines[0])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (len(lines[0]) + 9, resource.RLIM_INFINITY))\n"
        "file.write(lines[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "file.write(lines[2]); file.write(lines[3])\n"
    )
    printed: list[str] = []
    run_trainer(script(code), tmp_path, on_output=printed.append)
    assert [each["step"] for each in read_metrics(tmp_path)] == [1, 4]
    assert printed == [f"agent_rl: the metrics of a step are lost: verl wrote only part of them to {tmp_path}/"
                       "metrics.new.jsonl"]  # fmt: skip


def fail() -> None:
    raise RuntimeError("the head has ended")


def test_a_trainer_that_has_nothing_to_wait_for_is_stopped(tmp_path: Path) -> None:
    before = set(psutil.Process().children())  # other tests of this process may share some
    with pytest.raises(RuntimeError, match="the head has ended"):
        run_trainer(script("import time; time.sleep(60)"), tmp_path, watch=fail)
    left = set(psutil.Process().children()) - before
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


def test_sigquit_of_an_engine_is_not_ignored_in_the_background_of_a_shell(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        with pytest.raises(TrainerError, match="ended by SIGQUIT"):
            run_trainer(script("import os, signal; os.kill(os.getpid(), signal.SIGQUIT)"), tmp_path)
    finally:
        signal.signal(signal.SIGQUIT, before)


def test_the_trainer_dies_with_its_parent(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    trainer = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    code = (
        "import sys\nfrom agent_rl.launch.process import run_trainer\n"
        f"run_trainer([sys.executable, '-c', {trainer!r}], {str(tmp_path)!r})"
    )
    with subprocess.Popen(script(code)) as parent:
        deadline = time.monotonic() + 20
        while not (pid_file.exists() and pid_file.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        child = psutil.Process(int(pid_file.read_text()))
        parent.kill()
    assert not psutil.wait_procs([child], timeout=5)[1]


def test_a_process_that_hides_its_environment_ends_with_the_trainer(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], env={})\n"
        "print(child.pid)"
    )
    printed: list[str] = []
    run_trainer(script(code), tmp_path, on_output=printed.append)
    assert not psutil.wait_procs([psutil.Process(int(pid)) for pid in printed if psutil.pid_exists(int(pid))], 5)[1]


def test_the_next_start_ends_what_a_killed_launcher_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that does not end with the trainer, and the weights that it was loading."""
    monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path / "shm")
    monkeypatch.setattr(module, "STOP_S", 0.1)
    trainer = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        f"os.makedirs('{tmp_path}/shm/agent_rl_weights_' + os.environ['AGENT_RL_RUN'] + '_x')\n"
        f"os.makedirs('{tmp_path}/shm/agent_rl_weights_of_another_run')\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "os.kill(os.getppid(), 9)"
    )
    code = (
        "import sys\nfrom agent_rl.launch.process import run_trainer\n"
        f"run_trainer([sys.executable, '-c', {trainer!r}], {str(tmp_path / 'run')!r})"
    )
    assert subprocess.run(script(code), check=False).returncode == -signal.SIGKILL
    child = psutil.Process(int((tmp_path / "pid").read_text()))
    run_trainer(script("pass"), tmp_path / "run")
    assert not psutil.wait_procs([child], timeout=5)[1]
    assert [path.name for path in (tmp_path / "shm").iterdir()] == ["agent_rl_weights_of_another_run"]


def test_what_a_killed_process_leaves_in_shared_memory_is_removed_unless_another_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder in its place: other tests look at the real one."""
    monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path / "shm")
    module.SHARED_MEMORY.mkdir()
    files = [module.SHARED_MEMORY / name for name in ("sem.mp-x", "sglang_loads_x.shm", "x")]
    run_trainer(script(f"for path in {list(map(str, files))}: open(path, 'wb').write(bytes(8))"), tmp_path)
    assert [path.exists() for path in files] == [False, False, True]
    files[0].write_bytes(bytes(8))
    assert shared_files() == {files[0]}
    other = tmp_path / os.fsdecode(b"\xff")  # some process of the machine may have mapped a file with such a name
    other.write_bytes(bytes(8))
    with (
        open(files[0], "r+b") as file,
        mmap.mmap(file.fileno(), 8),
        open(other, "r+b") as more,
        mmap.mmap(more.fileno(), 8),
    ):
        remove_unused({files[0]})
        assert files[0].exists()
    remove_unused({files[0]})
    assert not files[0].exists()
