"""More hostile programs, on every tier that this machine has: hidden disk space, neighbours, deadlines, sessions.

They complement those in attacks.py, and print BREACH as those do. The fallback tiers, which a machine like this one
does not choose by itself, are forced.
"""

import asyncio
import os
import resource
import time

import pytest

from agent_rl.sandbox import PythonSandbox
from tests.sandbox.attacks import attack, calls, endless
from tests.sandbox.tiers import TIERS, on
from tests.support.descriptors import descriptors, left_open

pytestmark = pytest.mark.slow

GRACE_S = 2.0
WRITE = "import os, time\nwrite = lambda name: open(name, 'wb').write(bytes(4_000_000))\n"
BYTES = WRITE + "for n in range(8): write(f'{n}')\ntime.sleep(0.5)\nprint('BREACH')"

DISK = [
    attack(
        "deleted files that are open",
        WRITE + "kept = []\nfor n in range(8):\n    write('f')\n    kept.append(open('f'))\n    os.unlink('f')\n"
        "time.sleep(0.5)\nprint('BREACH')",
        "killed",
    ),
    attack(
        "files without a name",
        "import tempfile, time\nkept = [tempfile.TemporaryFile(dir='.') for _ in range(8)]\n"
        "for f in kept: f.write(bytes(4_000_000))\ntime.sleep(0.5)\nprint('BREACH')",
        "killed",
    ),
    attack("a nameless file", "import os\nos.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)\nprint('BREACH')", "error"),
    attack(
        "files that others replaced",
        WRITE + "kept = []\nfor n in range(8):\n    write('f')\n    kept.append(open('f'))\n    write('g')\n"
        "    os.rename('g', 'f')\ntime.sleep(0.5)\nprint('BREACH')",
        "killed",
    ),
    attack(
        "deleted files that a thread holds after the first one ended",
        WRITE
        + """
import ctypes, threading
def work():
    kept = []
    for n in range(8):
        write('f')
        kept.append(open('f'))
        os.unlink('f')
    time.sleep(0.5)
    os.write(1, b'BREACH')
    os._exit(0)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)
""",
        "killed",
    ),
    attack("a directory that cannot be read", "import os\nos.mkdir('d', 0o300)\nos.chdir('d')\n" + BYTES, "killed"),
    attack(
        "a directory without any right",
        "import os\nos.umask(0o577)\nos.mkdir('d')\nos.chdir('d')\n" + BYTES,
        "killed", "error",
    ),
    attack(
        "directories with long names",
        "import os\nfor n in range(17):\n    os.mkdir('n' * 250)\n    os.chdir('n' * 250)\n" + BYTES,
        "killed",
    ),
    attack(
        "a directory that is never where it was",
        """
import os, threading, time
os.mkdir('0')
fd = os.open('0', os.O_RDONLY)
def move():
    n = 0
    while True:
        os.rename(f'{n}', f'{(n + 1) % 97}')
        n = (n + 1) % 97
threading.Thread(target=move, daemon=True).start()
for n in range(8): os.write(os.open(f'{n}', os.O_CREAT | os.O_WRONLY, dir_fd=fd), bytes(4_000_000))
time.sleep(1.5)
print('BREACH')
""",
        "killed",
    ),
]  # fmt: skip

OTHERS = [
    calls("a table of descriptors for each thread", "syscall(436, 100, 200, 2)"),
    attack(
        "send out of band",
        "import socket\na, b = socket.socketpair()\na.send(b'x', socket.MSG_OOB)\nprint('BREACH')",
        "error",
    ),
    attack(
        "its neighbours' directories",
        """
import os
up = os.path.dirname(os.getcwd())
for n in range(400):
    for act in (os.listdir, os.rmdir, lambda p: os.mkdir(p + '/mine'), lambda p: os.rename(p, 'mine'),
                lambda p: open(p + '/secret').read(), lambda p: open(p + '/secret', 'w')):
        if f'{up}/{n}' != os.getcwd():
            try:
                act(f'{up}/{n}')
                print('BREACH', n)
            except OSError: pass
""",
    ),
    attack(
        "the directory above its own",
        """
import os
up = os.path.dirname(os.getcwd())
acts = [lambda: os.mkdir(up + '/9999'), lambda: open(up + '/new', 'w'), lambda: os.rename(os.getcwd(), up + '/9999'),
        lambda: os.rmdir(os.getcwd()), lambda: os.unlink(up + '/lock'), lambda: os.rename(up + '/lock', 'lock'),
        lambda: os.rename(up + '/packages', up + '/others'), lambda: os.mkdir(up + '/packages/evil'),
        lambda: open(up + '/packages/sitecustomize.py', 'w'), lambda: open(up + '/lock').read(),
        lambda: os.rename(up, up + 'x'), lambda: os.open(up, os.O_TMPFILE | os.O_RDWR)]
for n, act in enumerate(acts):
    try:
        act()
        print('BREACH', n)
    except OSError: pass
""",
    ),
    attack(
        "another process's descriptors",
        """
import os
for pid in (os.getppid(), $PIDS):
    for fd in range(250):
        try: print('BREACH', os.readlink(f'/proc/{pid}/fd/{fd}'))
        except OSError: pass
    for name in ('mem', 'environ', 'maps', 'fd', 'task', 'cwd/x', 'root/etc/passwd'):
        try:
            os.open(f'/proc/{pid}/{name}', os.O_RDONLY)
            print('BREACH', name)
        except OSError: pass
""",
    ),
    attack(
        "rights of a file that is open",
        """
import ctypes, os
libc, fd = ctypes.CDLL(None, use_errno=True), os.open('f', os.O_CREAT | os.O_RDWR)
for act in (libc.fchmod(fd, 0o777), libc.fchown(fd, 0, 0), libc.fsetxattr(fd, b'user.x', b'1', 1, 0),
            libc.futimens(fd, None), libc.fallocate(fd, 0, 0, 1 << 40), libc.flistxattr(fd, None, 0)):
    if act >= 0: print('BREACH')
""",
    ),
    attack(
        "signals by way of a descriptor",
        """
import ctypes, fcntl, os
r, w = os.pipe()
# SETOWN, SETSIG, SETOWN_EX, SETLEASE, NOTIFY, SETPIPE_SZ, ADD_SEALS
for command in (8, 10, 15, 1024, 1026, 1031, 1033):
    for value in (0, 1, os.getppid(), 1 << 20):
        if ctypes.CDLL(None).fcntl(w, command, value) >= 0: print('BREACH', command, value)
""",
    ),
    attack(
        "pages of others",
        """
import ctypes
libc = ctypes.CDLL(None)
for name, arguments in {'vmsplice': (1, None, 0, 0), 'splice': (0, 0, 1, 0, 1, 0), 'tee': (0, 1, 1, 0)}.items():
    if getattr(libc, name)(*arguments) >= 0: print('BREACH', name)
for number in (237, 238, 256, 279, 324, 135, 154, 158, 303, 447, 448, 449):  # mbind ... futex_waitv, on x86-64
    if __import__('os').uname().machine == 'x86_64' and libc.syscall(number, 0, 0, 0, 0, 0, 0) >= 0:
        print('BREACH', number)
""",
    ),
    attack(
        "a clone that shares too little",
        """
import ctypes, os
for flags in (0x3D0F00 & ~0x400, 0x3D0F00 & ~0x10000, 0x3D0F00 | 0x8000, 0x3D0F00 | 0x800000, 0x11, 0x4111, 0):
    pid = ctypes.CDLL(None).syscall(56 if os.uname().machine == 'x86_64' else 220, flags, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    if pid > 0: print('BREACH', hex(flags))
""",
    ),
    attack(
        "limits of its own, raised bit by bit",
        """
import resource as r
for name in dir(r):
    if name.startswith('RLIMIT_'):
        number = getattr(r, name)
        soft, hard = r.getrlimit(number)
        for value in (r.RLIM_INFINITY, hard + 1):
            if hard not in (r.RLIM_INFINITY, value):
                try: r.setrlimit(number, (value, value))
                except (OSError, ValueError): continue
                if r.getrlimit(number)[1] != hard: print('BREACH', name)
""",
    ),
    attack(
        "memory that is not its own",
        """
import mmap
kept = []
while len(kept) < 60: kept.append(mmap.mmap(-1, 30 << 20))
print('BREACH')
""",
        "error", "memory", "killed",
    ),
    attack("a file that is too long", "f = open('f', 'w+b')\nf.truncate(33 << 20)\nprint('BREACH')", "error", "killed"),
    endless(
        "the deadline ignored",
        """
import os, signal, time
start = time.monotonic()
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True:
    signal.sigtimedwait(range(1, 65), 0.1)
    if time.monotonic() > start + 3: os.write(1, b'BREACH')
""",
    ),
    endless(
        "a good end after the deadline",
        "import os, signal, time\nsignal.signal(signal.SIGRTMAX, lambda *a: os._exit(0))\ntime.sleep(9)",
        timeout_s=0.3,
    ),
    endless(
        "stop and go on",
        """
import os, signal, threading, time
def go():
    while True: os.kill(os.getpid(), signal.SIGCONT)
threading.Thread(target=go, daemon=True).start()
while True: os.kill(os.getpid(), signal.SIGSTOP)
""",
        "killed", timeout_s=0.5,
    ),
    endless(
        "threads that come and go",
        """
import threading, time
threading.stack_size(1 << 16)
while True:
    try: threading.Thread(target=int).start()
    except RuntimeError: pass
""",
        "killed", "error", timeout_s=0.5,
    ),
    endless(
        "a lock on each second byte",
        "import fcntl\nf, n = open('f', 'wb'), 0\nwhile True:\n    fcntl.lockf(f, fcntl.LOCK_EX, 1, n)\n    n += 2",
    ),
    endless(
        "a map of each second page",
        """
import ctypes, mmap
m = mmap.mmap(-1, 400 << 20)
start = ctypes.addressof(ctypes.c_char.from_buffer(m))
protect = ctypes.CDLL(None).mprotect
protect.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
for n in range(0, 400 << 20, 8192):
    if protect(start + n, 4096, 0): break
while True: pass
""",
    ),
    endless(
        "fill the disk's queue",
        """
import os, threading
def write(name):
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    while True:
        os.pwrite(fd, bytes(4 << 20), 0)
        os.fsync(fd)
for n in range(4): threading.Thread(target=write, args=(f'{n}',)).start()
""",
    ),
    attack("a byte at a time", "import os\nwhile True: os.write(1, b'x')", "output_limit", "timeout", timeout_s=2),
    attack(
        "broken text at the limit",
        "import os\nos.write(2, b'\\xf0\\x9f')\nwhile True: os.write(1, b'\\xf0\\x9f\\x98' * 9999)",
        "output_limit",
    ),
    attack(
        "an exit code that is no number",
        "class E(int):\n    def __and__(self, other): return 'x'\nraise SystemExit(E(3))",
        "error",
    ),
    attack(
        "names that removing would use",
        "import os\nfor n in range(1, 9):\n    os.makedirs(f'{n}.moved/x')\n    os.makedirs(f'a{n}/b/c')\n"
        "    open(f'a{n}/b/c/f', 'w').close()",
        "ok",
    ),
]  # fmt: skip


@pytest.fixture(scope="module", params=list(TIERS))
def outcomes(request):
    """The executions of all programs on one tier, beside honest ones, with what the honest ones said."""

    async def main():
        async with on(request.param, file_bytes=4 << 20, disk_bytes=16 << 20) as sandbox:
            decoy = asyncio.ensure_future(
                sandbox.run("open('secret', 'w').write('s')\nimport time\ntime.sleep(30)", timeout_s=40)
            )
            first = await sandbox.run("import os\nprint(os.getpid())")
            pids = str([os.getpid(), int(first.stdout) - 1])[1:-1]
            attacks = [*OTHERS, *DISK]
            runs = await asyncio.gather(
                *(sandbox.run(a.code.replace("$PIDS", pids), timeout_s=a.timeout_s) for a in attacks)
            )
            honest = await asyncio.gather(*(sandbox.run("open('f', 'w').write('x')\nprint(6 * 7)") for _ in range(20)))
            assert not decoy.done()
            decoy.cancel()
        return {a.name: run for a, run in zip(attacks, runs, strict=True)}, honest

    return asyncio.run(main())


@pytest.mark.parametrize("program", [*DISK, *OTHERS], ids=lambda program: program.name)
def test_it_does_not_get_what_it_wants(outcomes, program):
    execution = outcomes[0][program.name]
    assert "BREACH" not in execution.stdout, execution
    assert execution.status.value in program.statuses, execution
    assert execution.own_s < program.timeout_s + GRACE_S


def test_the_honest_ones_are_not_disturbed(outcomes):
    assert [(run.status, run.stdout) for run in outcomes[1]] == [("ok", "42\n")] * 20


PAIRS = {
    "flags of standard input": (
        "import fcntl, os\nfcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)",
        "import fcntl, os\nprint(fcntl.fcntl(0, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_APPEND))",
        "0\n",
    ),
    "the mask, limits, signals and timers": (
        "import os, resource as r, signal\nos.umask(0)\nr.setrlimit(r.RLIMIT_NOFILE, (9, 9))\nsignal.alarm(1)\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.pthread_sigmask(signal.SIG_BLOCK, {1})",
        "import os, resource as r, signal\nprint(os.umask(0o22) == 0, r.getrlimit(r.RLIMIT_NOFILE)[0] == 9, "
        "signal.alarm(0), signal.getsignal(2) == signal.SIG_IGN, signal.pthread_sigmask(signal.SIG_BLOCK, ()))",
        "False False 0 False set()\n",
    ),
    "modules, names and the environment": (
        "import builtins, json, os, sys\nbuiltins.mark = json.mark = sys.mark = 1\nos.environ['MARK'] = '1'",
        "import builtins, json, os, sys\n"
        "print([hasattr(m, 'mark') for m in (builtins, json, sys)], 'MARK' in os.environ)",
        "[False, False, False] False\n",
    ),
    "files, also those that a thread makes while it is killed": (
        "import os, threading\ndef make():\n    n = 0\n    while True:\n        n = (n + 1) % 9\n"
        "        open(f'{n}', 'w').close()\n        os.unlink(f'{n}')\n"
        "threading.Thread(target=make, daemon=True).start()",
        "import os\nprint(os.listdir('.'))",
        "[]\n",
    ),
    "the size of a directory": (
        "import os\nfor n in range(300): open('x' * 200 + str(n), 'w').close()\nfor n in os.listdir('.'): os.unlink(n)",
        "import os\nprint(os.stat('.').st_size <= 4096)",
        "True\n",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def seen(box):
    """What the second program of each pair prints, by form and name."""

    def one(form, code):
        return box.do(box.sandbox.run(code)) if form == "run" else box.cells(code)[0]

    found = {}
    for form in ("run", "session"):
        for name, (leave, look, _) in PAIRS.items():
            assert [one(form, leave).status for _ in range(2)] == ["ok", "ok"]
            found[form, name] = one(form, look)
    return found


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("form", ["run", "session"])
def test_nothing_is_left_for_the_next_program(seen, name, form):
    assert seen[form, name].stdout == PAIRS[name][-1], seen[form, name]


def test_no_two_programs_draw_the_same_numbers(box):
    code = """
import random, numpy, sympy.core.random, uuid, tempfile
print(random.random(), random.gauss(0, 1), numpy.random.rand(), numpy.random.randn(),
      numpy.random.default_rng().random(), sympy.core.random.rng.random(), uuid.uuid1(), tempfile.mktemp(), sep='\\n')
"""

    one, other = (box.do(box.sandbox.run(code)).stdout.split() for _ in range(2))
    assert len(one) == 8
    assert not set(one) & set(other)


SAY = """
import os, signal, struct, sys, threading, time
frame = sys._getframe()
while 'nonce' not in frame.f_locals: frame = frame.f_back
nonce, channel = frame.f_locals['nonce'], frame.f_locals['channel']
def say(nonce=nonce): os.write(channel, struct.pack('<16sBB', nonce, 0, 0))
"""
CELLS = {
    "an end after the deadline": (
        "signal.signal(signal.SIGRTMAX, lambda *a: say())\nwhile True: pass", {"timeout"}, 0.5
    ),
    "an end, and then much more": (
        "say()\nwhile True: os.write(channel, bytes(1 << 16))", {"ok", "killed"}, 3
    ),
    "an end for the next cell": (
        "def steal():\n    head = os.read(channel, 25)\n    say(head[:16])\n"
        "threading.Thread(target=steal, daemon=True).start()", {"ok"}, 3
    ),
    "a stop before the end": (
        "threading.Timer(0.1, say).start()\nos.kill(os.getpid(), signal.SIGSTOP)", {"timeout"}, 0.5
    ),
    "a channel without end": ("while True: os.write(channel, nonce + bytes(1 << 16))", {"killed"}, 3),
    "a channel that is shut": (
        "import socket\nsocket.socket(fileno=channel).shutdown(socket.SHUT_WR)\ntime.sleep(9)", {"killed"}, 5
    ),
    "the first thread ends": (
        "threading.Timer(0.1, say).start()\nimport ctypes\n"
        "ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)", {"ok", "error"}, 3
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def cells():
    """For each bad cell: its execution and the next one, what its neighbour kept, what it cost the trainer."""

    async def one(sandbox, neighbour, code, limit_s):
        before = descriptors()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with sandbox.session(timeout_s=limit_s) as session:
            bad = await session.run(SAY + code)
            busy_s = time.process_time()
            await asyncio.sleep(0.2)
            busy_s = time.process_time() - busy_s
            after = await session.run("print(1)", timeout_s=0.3)
        kept = await neighbour.run("print(x)")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
        return bad, after, kept, busy_s, grown, left_open(before)

    async def main():
        async with PythonSandbox(packages=(), max_concurrency=2) as sandbox, sandbox.session() as neighbour:
            await neighbour.run("x = 42")
            return {name: await one(sandbox, neighbour, code, limit) for name, (code, _, limit) in CELLS.items()}

    return asyncio.run(main())


@pytest.mark.parametrize("name", CELLS)
def test_a_session_spoils_nothing_but_itself(cells, name):
    _, statuses, limit_s = CELLS[name]
    bad, after, kept, busy_s, grown, left = cells[name]
    assert bad.status.value in statuses, bad
    assert bad.own_s < limit_s + GRACE_S
    assert after.status.value in ("ok", "timeout", "killed", "error"), after
    assert (kept.status, kept.stdout) == ("ok", "42\n")
    assert busy_s < 0.15  # the trainer waits and does not spin
    assert grown < 64 << 10  # KiB
    assert not left
