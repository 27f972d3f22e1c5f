"""Programs in the sandbox, with the real processes: what they see, how they end, and that nothing is left behind."""

import asyncio
import glob
import os
import re
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.sandbox import Execution, ExecutionStatus, PythonSandbox
from agent_rl.sandbox.host import supervisor
from tests.sandbox.tiers import WITHOUT_ISOLATION
from tests.support.descriptors import descriptors, left_open
from tests.support.processes import alive, children, until, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def run(box):
    """Runs programs one after the other; their executions, a single one for a single program."""

    def run(*programs, sandbox=None, **options):
        async def main(opened):
            return [await opened.run(textwrap.dedent(program), **options) for program in programs]

        async def in_its_own():
            async with PythonSandbox(**sandbox) as opened:
                return await main(opened)

        found = box.do(main(box.sandbox)) if sandbox is None else asyncio.run(in_its_own())
        return found[0] if len(programs) == 1 else found

    return run


def test_a_program_that_ends_well(run):
    execution = run("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert (execution.stdout, execution.stderr, execution.exit_code) == ("out\n", "err\n", 0)
    assert execution.status is ExecutionStatus.OK
    assert execution.status == "ok"
    assert 0 < execution.wall_s < 5
    with pytest.raises(AttributeError):
        execution.stdout = ""


def test_the_world_that_a_program_sees(run):
    execution = run(
        """
        import gc, os, pickle, sys, tempfile
        class A: pass
        print(__name__, sys.modules["__main__"].A is A, pickle.loads(pickle.dumps(A())).__class__ is A)
        print(os.getcwd() == os.environ["HOME"] == os.environ["TMPDIR"] == tempfile.gettempdir(), os.listdir("."))
        print(sys.argv, sorted(os.environ), gc.isenabled(), {"b", "a", "c"})
        open("mod.py", "w").write("x = 3")
        import mod
        print(mod.x, sys.stdin.read() == "", sys.stdout.encoding)
        frame = sys._getframe()
        while frame:
            assert not {"zygote", "self", "control"} & set(frame.f_locals), frame.f_locals
            frame = frame.f_back
        """
    )
    lines = execution.stdout.splitlines()
    assert execution.stderr == ""
    assert lines[0] == "__main__ True True"
    assert lines[1] == "True []"
    assert lines[2].startswith("[''] ['HOME', 'LANG', ")
    assert "True" in lines[2]
    assert lines[3] == "3 True utf-8"


@pytest.mark.parametrize(
    ("program", "status", "exit_code", "text"),
    [
        ("import sys; sys.exit(3)", "error", 3, ""),
        ("import sys; sys.exit('why')", "error", 1, "why\n"),
        ("import sys; sys.exit()", "ok", 0, ""),
        ("exit(4)", "error", 4, ""),
        ("import sys; sys.exit(2**63 - 1)", "error", 255, ""),
        ("import sys; sys.exit(2**63)", "error", 255, ""),
        ("import sys; sys.exit(-2**80)", "error", 255, ""),
        ("class E(int):\n    def __and__(self, other): return 0\nraise SystemExit(E(3))", "error", 3, ""),
        ("import os; os._exit(0)", "ok", 0, ""),
        ("raise ValueError('x')", "error", 1, "ValueError: x"),
        ("x = = 1", "error", 1, '  File "<sandbox>", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n'),
        ("print('a\0b')", "error", 1, "null bytes"),
        ("'\udcff'", "ok", 0, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "killed", -signal.SIGTERM, "by SIGTERM"),
        ("x = bytearray(10**9)", "memory", 1, "MemoryError"),
        ("x = []\nwhile True: x.append(' ' * 10**6)", "memory", 1, "MemoryError"),
        ("def f(): f()\nf()", "error", 1, "RecursionError"),
    ],
)
def test_how_a_program_ends(run, program, status, exit_code, text):
    execution = run(program)
    assert (execution.status, execution.exit_code) == (status, exit_code)
    assert text in execution.stderr


@pytest.mark.parametrize("start", ["", "'''a\fb\u2028c\r\nd'''\r\n"], ids=["plain", "other line separators"])
def test_a_traceback_looks_like_pythons_own(run, tmp_path, start):
    program = f"{start}def f(x):\n    return 1 / x\n\ntry:\n    f(0)\nexcept ZeroDivisionError:\n    raise OSError\n"
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8", newline="")
    own = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False).stderr
    assert run(program).stderr == own.replace(str(file), "<sandbox>")


def test_exit_handlers_and_threads_are_waited_for(run):
    execution = run(
        """
        import atexit, sys, threading, time
        atexit.register(print, "handler")
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        print("main", end="")
        sys.exit(5)
        """
    )
    assert (execution.stdout, execution.exit_code) == ("mainthread\nhandler\n", 5)


def test_a_program_inherits_no_signal_settings_of_the_host():
    """A trainer under `nohup` ignores SIGHUP, one in the background of a shell SIGINT; libraries block others."""
    look = """
import signal
found = {int(s): signal.getsignal(s) for s in signal.valid_signals() if s != signal.SIGRTMAX}
print({s: handler for s, handler in found.items() if handler is not signal.SIG_DFL})
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""
    changed = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in changed}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE})

    async def main():
        async with PythonSandbox(packages=()) as box, box.session() as session:
            return await box.run(look), await session.run(look)

    try:
        executions = asyncio.run(main())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
    for execution in executions:
        handlers, blocked = execution.stdout.splitlines()
        as_python_starts = [("2", "default_int_handler"), ("13", "SIG_IGN"), ("25", "SIG_IGN")]  # SIGPIPE, SIGXFSZ
        assert re.findall(r"(\d+): <[^>]*(default_int_handler|SIG_IGN)", handlers) == as_python_starts
        assert handlers.count("<") == 3
        assert blocked == "set()"


def test_a_program_has_no_descriptors_but_its_own(run, box):
    look = """
import os
found = []
for number in range(300):
    try:
        os.fstat(number)
    except OSError:
        continue
    found.append(number)
print(found)
"""
    assert [each.stdout for each in run(look, f"{look}# numpy", f"{look}# sympy")] == ["[0, 1, 2]\n"] * 3
    assert box.cells(look)[0].stdout == "[0, 1, 2, 3]\n"  # and its channel


def test_a_program_reads_its_standard_input(run):
    large = "0123456789abcde\n" * 655_360
    lines = run("print(input() + input()); input()", stdin="a\nb\n")
    size = run("import os, sys; print(len(os.read(0, 5)), len(sys.stdin.buffer.read()))", stdin=large)
    unread = run("print('done')", stdin=large)
    assert lines.stdout == "ab\n"
    assert "EOFError" in lines.stderr
    assert size.stdout == f"5 {10 * 2**20 - 5}\n"
    assert (unread.stdout, unread.status) == ("done\n", "ok")


def test_the_last_expression_is_shown_on_request(run):
    shown = run("x = 20\nx + 1", "x = 1", "None", "'a'", "1/0", "", "print(1);", show_last=True)
    assert [execution.stdout for execution in shown] == ["21\n", "", "", "'a'\n", "", "", "1\n"]
    assert run("20 + 1").stdout == ""


def test_a_program_that_does_not_end(run):
    looping, sleeping, deaf = run(
        "print('head')\nwhile True: pass",
        "print('head')\nimport time; time.sleep(60)",
        "print('head', flush=True)\nimport signal\nsignal.signal(signal.SIGRTMAX, signal.SIG_IGN)\nwhile True: pass",
        timeout_s=0.3,
    )
    for execution in (looping, sleeping, deaf):
        assert (execution.status, execution.stdout, execution.exit_code) == ("timeout", "head\n", None)
        assert execution.stderr.endswith("at its time limit of 0.3 s\n")
        assert execution.wall_s >= 0.3
        assert execution.own_s < 5


def test_output_beyond_the_limit_ends_a_program(run):
    endless, short, exact = run(
        "while True: print('x' * 99)",
        "import sys, time\nprint('a' * 600, flush=True)\ntime.sleep(0.2)\nprint('b' * 600, file=sys.stderr)",
        "print('c' * 999)",
        sandbox={"output_bytes": 1000},
    )
    assert (endless.status, len(endless.stdout)) == ("output_limit", 1000)
    assert "more output" in endless.stderr
    assert (short.status, len(short.stdout)) == ("output_limit", 601)
    assert (exact.status, len(exact.stdout)) == ("ok", 1000)


def test_disk_files_and_threads_are_watched(run):
    disk, files, threads, large = run(
        "import time\nfor i in range(9):\n    open(str(i), 'wb').write(bytes(2**20))\ntime.sleep(9)",
        "import time\nfor i in range(3000):\n    open(str(i), 'w').close()\ntime.sleep(9)",
        "import threading, time\nthreading.stack_size(2**16)\n"
        "for _ in range(100): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\ntime.sleep(9)",
        "open('x', 'wb').write(bytes(5 * 2**20))",
        sandbox={"disk_bytes": 2**22, "file_bytes": 2**22},
        timeout_s=8,
    )
    assert (disk.status, disk.exit_code) == ("killed", None)
    assert "disk" in disk.stderr
    assert (files.status, "files" in files.stderr) == ("killed", True)
    assert threads.status in ("killed", "error")  # refused by the kernel where the program has a uid of its own
    assert "thread" in threads.stderr
    assert "File too large" in large.stderr


def test_only_declared_packages_exist(run):
    programs = ["import agent_rl", "import pydantic", "import sympy, mpmath, numpy; print(numpy.linalg.inv([[2.0]]))"]
    own, other, declared = run(*programs)
    assert "ModuleNotFoundError: No module named 'agent_rl'" in own.stderr
    assert "ModuleNotFoundError: No module named 'pydantic'" in other.stderr
    assert declared.stdout == "[[0.5]]\n"
    none = run("import numpy", sandbox={"packages": ()})
    assert "ModuleNotFoundError" in none.stderr
    with pytest.raises(ConfigError, match="no-such-package"):
        PythonSandbox(packages=["no-such-package"])


def test_an_editable_package_cannot_be_declared(tmp_path, monkeypatch):
    folder = tmp_path / "mine-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
    (folder / "direct_url.json").write_text('{"url": "file:///mine", "dir_info": {"editable": true}}')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="'mine' is installed in editable mode"):
        PythonSandbox(packages=["mine"])


def test_packages_of_the_interpreter_under_a_virtual_environment_are_out_of_reach(run):
    folders = [f"{sysconfig.get_path('stdlib')}/{name}" for name in ("site-packages", "dist-packages")]
    found = [path for folder in folders for path in glob.glob(f"{folder}/*/__init__.py")]
    if not found:
        pytest.skip("the interpreter has no packages of its own")
    execution = run(
        f"""
        import os, sys
        sys.path += {folders}
        for path in {found[:3]}:
            for act in (open, lambda path: os.listdir(os.path.dirname(path))):
                try:
                    print("BREACH", act(path))
                except (PermissionError, FileNotFoundError):
                    pass
        try:
            import {Path(found[0]).parent.name}
            print("BREACH")
        except ImportError:
            print("nothing")
        """
    )
    assert (execution.stdout, execution.stderr) == ("nothing\n", "")


def test_sets_have_the_same_order_in_each_program(run):
    first, second = run(*["print({str(i) for i in range(9)})"] * 2)
    assert first.stdout == second.stdout


async def test_a_program_that_cannot_be_confined_is_not_run(tmp_path):
    async with PythonSandbox(packages=(), scratch_dir=str(tmp_path)) as box:
        folder = (await box.run("import os\nprint(os.getcwd())")).stdout.strip()
        await asyncio.sleep(0.2)  # until it is lent again
        os.rmdir(folder)
        execution, after = await box.run("print(1)"), await box.run("print(2)")
    assert (execution.status, execution.stdout) == ("unavailable", "")
    assert "could not be confined: [Errno 2]" in execution.stderr
    assert after.stdout == "2\n"


async def test_two_hundred_at_a_time(box):
    await box.sandbox.run("")
    before = descriptors()
    found = await asyncio.gather(*(box.sandbox.run(f"print({number})") for number in range(200)))
    assert not left_open(before)
    assert [execution.stdout for execution in found] == [f"{number}\n" for number in range(200)]


async def test_concurrency_is_bounded_and_waiting_is_not_counted():
    async with PythonSandbox(max_concurrency=2) as box:
        await box.run("")
        started = time.monotonic()
        found = await asyncio.gather(*(box.run("import time; time.sleep(0.4)", timeout_s=2.0) for _ in range(6)))
        took = time.monotonic() - started
    assert took >= 1.2
    assert all(execution.status == "ok" and execution.own_s < 1.1 for execution in found)


async def test_cancelling_kills_and_releases():
    async with PythonSandbox(max_concurrency=1) as box:
        await box.run("")
        zygote = box._pool.ready("lean").pid
        before = descriptors()
        task = asyncio.create_task(box.run("import time; time.sleep(60)", "x" * 10**6, 60))
        await until(lambda: children(zygote))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not left_open(before)
        await until(lambda: not children(zygote))
        assert (await box.run("print(1)")).stdout == "1\n"


async def test_a_killed_zygote_is_replaced(caplog, tmp_path):
    async with PythonSandbox(scratch_dir=str(tmp_path)) as box:
        await box.run("")
        zygote = box._pool.ready("lean").pid
        running = asyncio.create_task(box.run("print(1, flush=True)\nimport time; time.sleep(60)", timeout_s=60))
        await asyncio.sleep(0.6)
        (child,) = children(zygote)
        os.kill(zygote, signal.SIGKILL)
        found = await running
        await until(lambda: not alive(child))
        lost, after = found, await asyncio.gather(*(box.run("print(2)") for _ in range(5)))
    assert lost.status == "unavailable"
    assert [execution.stdout for execution in after] == ["2\n"] * 5
    assert "died" in caplog.text
    assert list(tmp_path.iterdir()) == []


async def test_a_zygote_killed_before_the_fork_costs_a_second_attempt():
    async with PythonSandbox() as box:
        await box.run("")
        zygote = box._pool.ready("lean").pid
        os.kill(zygote, signal.SIGSTOP)
        waiting = asyncio.create_task(box.run("print(1)"))
        await asyncio.sleep(0.1)
        os.kill(zygote, signal.SIGKILL)
        assert (await waiting).stdout == "1\n"


def test_nothing_remains_when_the_trainer_is_killed(tmp_path):
    driver = f"""
        import asyncio
        from agent_rl.sandbox import PythonSandbox
        async def main():
            async with PythonSandbox(scratch_dir={str(tmp_path)!r}, max_concurrency=8) as box:
                async with box.session() as session:
                    await session.run("open('x', 'w').write('x')")
                    print("ready", flush=True)
                    programs = ["while True: pass", "import numpy, time; open('y', 'w'); time.sleep(60)"]
                    await asyncio.gather(*(box.run(program, timeout_s=60) for program in programs))
        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(driver)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        wait_until(lambda: sum(len(children(zygote)) for zygote in children(process.pid)) == 3, 30)
        zygotes = children(process.pid)
        family = zygotes + [child for zygote in zygotes for child in children(zygote)]
        process.kill()
    wait_until(lambda: not any(alive(pid) for pid in family))
    assert list(tmp_path.iterdir()) == []


async def test_a_directory_left_by_a_killed_zygote_is_swept_later(tmp_path):
    left = tmp_path / "agent_rl-sandbox-left"
    (left / "deep" / "deeper").mkdir(parents=True)
    (left / "lock").touch()
    async with PythonSandbox(scratch_dir=str(tmp_path)) as box:
        held = await box.run("import os; print(os.path.dirname(os.getcwd()))")
        async with PythonSandbox(scratch_dir=str(tmp_path)) as other:
            await other.run("")
            assert os.stat(held.stdout.strip()).st_nlink > 0
    assert list(tmp_path.iterdir()) == []


async def test_nothing_is_left_at_the_end(tmp_path):
    before, others = descriptors(), set(children(os.getpid()))
    async with PythonSandbox(scratch_dir=str(tmp_path)) as box:
        await box.run("import numpy; open('x', 'w')")
        await box.run("import os; os.makedirs('a/b'); os.mkdir('c', 0)")
        forgotten = asyncio.create_task(box.run("import time; time.sleep(60)", timeout_s=60))
        await asyncio.sleep(0.3)
        family = set(children(os.getpid())) - others
    assert (await forgotten).status == "unavailable"
    assert family
    assert not any(alive(pid) for pid in family)
    assert list(tmp_path.iterdir()) == []
    assert not left_open(before)


def test_without_isolation_nothing_runs_unless_unsafe(run, monkeypatch, caplog):
    monkeypatch.setattr(supervisor, "_COMMAND", WITHOUT_ISOLATION)
    refused = run("print(1)", sandbox={})
    assert (refused.status, refused.stdout, refused.exit_code) == ("refused", "", None)
    assert "seccomp: no kernel" in refused.stderr
    assert [execution.stdout for execution in run("print(1)", "print(2)", sandbox={"unsafe": True})] == ["1\n", "2\n"]
    assert caplog.text.count("without sufficient isolation") == 1


async def test_wrong_use_raises():
    box = PythonSandbox()
    with pytest.raises(RuntimeError, match="outside"):
        await box.run("")
    async with box:
        for options in ({"timeout_s": 0}, {"memory_mb": -1}, {"timeout_s": float("nan")}):
            with pytest.raises(ValueError, match="must be"):
                await box.run("", **options)
        with pytest.raises(RuntimeError, match="event loop"):
            await asyncio.to_thread(lambda: asyncio.run(box.run("")))
    with pytest.raises(ValueError, match="max_concurrency"):
        PythonSandbox(max_concurrency=0)
    assert Execution(ExecutionStatus.OK) == Execution(ExecutionStatus("ok"))
