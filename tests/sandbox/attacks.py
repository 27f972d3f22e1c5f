"""Hostile programs. Each prints BREACH when it has got what it wanted.

`$NAME` stands for something of the world that `world.py` builds: a secret file, a victim process, a listening server.
An attack with `control=True` is also run without a sandbox, where it must succeed: a program that fails for a mistake
of its own would prove nothing.
"""

import os
from dataclasses import dataclass

ENDED = frozenset({"ok", "error"})
LINUX = tuple(int(part) for part in os.uname().release.split(".")[:2])


@dataclass(frozen=True)
class Attack:
    name: str
    code: str
    statuses: frozenset[str] = ENDED
    control: bool = False
    timeout_s: float = 30.0

    @property
    def in_session(self) -> frozenset[str]:
        """The statuses of a cell: it has no exit, and one that disturbs its session is killed."""
        return self.statuses | {"killed"} | ({"ok"} if "atexit" in self.code else set())


def attack(name: str, code: str, *statuses: str, control: bool = False, timeout_s: float | None = None) -> Attack:
    """An attack; one that must meet another limit than that of time has so much of it that a busy machine is enough."""
    timeout_s = timeout_s or (5.0 if "timeout" in statuses else 30.0)
    return Attack(name, code.strip("\n"), frozenset(statuses) or ENDED, control, timeout_s)


def denied(name: str, code: str, *statuses: str, control: bool = False) -> Attack:
    """An attack of which each step must succeed: it gets what it wants where its end is reached."""
    return attack(name, f"import ctypes, os, socket\n{code.strip()}\nprint('BREACH')", *statuses, control=control)


def endless(name: str, code: str, *statuses: str, timeout_s: float = 1.0) -> Attack:
    """An attack that does not end by itself before its limit."""
    return attack(name, code, "timeout", *statuses, timeout_s=timeout_s)


def reads(name: str, code: str) -> Attack:
    """An attack that has the secret in `data`."""
    return attack(name, f"import os\n{code}\nif '$TOKEN' in str(data): print('BREACH')", control=True)


def calls(name: str, call: str, *, control: bool = False) -> Attack:
    """An attack by a function of the C library that returns 0 where it succeeds."""
    return attack(name, f"import ctypes, os\nif ctypes.CDLL(None).{call} == 0: print('BREACH')", control=control)


FILES = [
    reads("read a secret file", "data = open('$SECRET').read()"),
    reads("read it through a symbolic link", "os.symlink('$SECRET', 'link')\ndata = open('link').read()"),
    reads("read it through a hard link", "os.link('$SECRET', 'link')\ndata = open('link').read()"),
    denied("move it here", "os.rename('$MOVABLE', 'mine')", control=True),
    reads(
        "read it by sendfile",
        """
out = os.open('copy', os.O_RDWR | os.O_CREAT)
os.sendfile(out, os.open('$SECRET', os.O_RDONLY), 0, 100)
data = open('copy').read()
""",
    ),
    reads(
        "read it by a descriptor of the root directory",
        "root = os.open('/', os.O_PATH)\ndata = os.read(os.open('$SECRET'[1:], os.O_RDONLY, dir_fd=root), 99)",
    ),
    reads(
        "read it by the C library",
        """
import ctypes
libc, buffer = ctypes.CDLL(None), ctypes.create_string_buffer(99)
libc.read(libc.open(b'$SECRET', 0), buffer, 99)
data = buffer.raw
""",
    ),
    denied("list a foreign directory", "assert 'secret.txt' in os.listdir('$OUTSIDE')", control=True),
    denied("walk the machine", "assert list(os.walk('$OUTSIDE'))", control=True),
    denied("read the list of users", "open('/etc/passwd').read()", control=True),
    denied("read the passwords", "open('/etc/shadow').read()"),
    denied("read the mounts", "open('/proc/self/mounts').read()", control=True),
    denied("read its own environment file", "open('/proc/self/environ').read()", control=True),
    denied("read the trainer's environment", "open('/proc/$TRAINER/environ').read()", control=True),
    denied("read the parent's environment", "open(f'/proc/{os.getppid()}/environ').read()", control=True),
    denied("read the trainer's command line", "open('/proc/$TRAINER/cmdline').read()", control=True),
    denied("open the trainer's memory", "open('/proc/$TRAINER/mem', 'rb')"),
    denied("open the parent's memory", "open(f'/proc/{os.getppid()}/mem', 'rb')"),
    denied("search its own memory file", "open('/proc/self/maps').read()", control=True),
    denied("enter the trainer's directory", "os.chdir('/proc/$TRAINER/cwd')\nos.listdir('.')", control=True),
    denied("write to a foreign file", "open('$VICTIM', 'w').write('x')", control=True),
    denied("append to a foreign file", "open('$VICTIM', 'a').write('x')", control=True),
    denied("truncate a foreign file", "os.truncate('$VICTIM', 0)", control=True),
    denied("delete a foreign file", "os.unlink('$VICTIM')", control=True),
    denied("rename a foreign file", "os.rename('$VICTIM', '$VICTIM.old')", control=True),
    denied("make a foreign directory", "os.mkdir('$OUTSIDE/made')", control=True),
    denied("make a foreign link", "os.symlink('x', '$OUTSIDE/link')", control=True),
    denied("change a mode", "os.chmod('$VICTIM', 0o777)", control=True),
    denied("change an owner", "os.chown('$VICTIM', os.getuid(), os.getgid())", control=True),
    denied("change a time stamp", "os.utime('$VICTIM', (1, 1))", control=True),
    denied("set an attribute", "os.setxattr('$VICTIM', 'user.mark', b'1')"),
    denied("write to the shared memory folder", "open('/dev/shm/$MARK', 'w')"),
    denied("write to the temporary folder", "open('/tmp/$MARK', 'w')"),
    denied("write beside its own directory", "open('../$MARK', 'w')"),
    denied("poison the standard library", "import json\nopen(json.__file__, 'a')"),
    denied("poison its byte code", "import json\nopen(json.__cached__, 'ab')"),
    denied("poison numpy", "import numpy\nopen(numpy.__file__, 'a')"),
    denied("make a device", "import stat\nos.mknod('disk', stat.S_IFBLK | 0o600, os.makedev(254, 0))"),
    denied("read the disk", "open('/dev/vda', 'rb').read(1)"),
    denied("read the kernel's log", "open('/dev/kmsg').read(1)"),
    denied("import the package that judges it", "import agent_rl"),
    denied("import the trainer's packages", "import sys\nsys.path += ['$SITE']\nimport pydantic"),
    calls("mount", "mount(b'none', b'.', b'tmpfs', 0, None)"),
    denied(
        "lock a file that others can read",
        "import fcntl, json\nfcntl.flock(open(json.__file__), fcntl.LOCK_EX | fcntl.LOCK_NB)",
        control=True,
    ),
    denied("change the root", "os.chroot('.')"),
    attack(
        "find a descriptor that was left open",
        """
import os, stat
for fd in range(3, 1024):
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        continue
    if not stat.S_ISFIFO(mode) and not stat.S_ISCHR(mode) and not stat.S_ISSOCK(mode):
        print('BREACH', fd, oct(mode))
    if stat.S_ISSOCK(mode):
        import socket
        name = socket.socket(fileno=os.dup(fd)).getsockname()
        if name: print('BREACH', fd, name)
""",
    ),
]

PROCESSES = [
    denied("fork", "if os.fork() == 0: os._exit(0)", control=True),
    denied("run a program", "import subprocess\nsubprocess.run(['/bin/true'])", control=True),
    attack("run a shell", "import os\nif os.system('exit 0') == 0: print('BREACH')", control=True),
    denied("spawn", "os.posix_spawn('/bin/true', ['true'], {})", control=True),
    attack("become another program", "import os\nos.execv('/bin/echo', ['echo', 'BREACH'])", control=True),
    attack("open a pseudo terminal", "import pty\npty.spawn(['/bin/echo', 'BREACH'])"),
    denied("a process pool", "import multiprocessing as m\nm.Pool(1).map(abs, [-1])", "ok", "error", "timeout"),
    denied(
        "daemonize",
        """
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(60)
""",
    ),
    attack("fork without end", "import os\nwhile True:\n    os.fork()\n    print('BREACH')"),
    attack(
        "start threads without end",
        """
import threading, time
started = 0
try:
    while started < 3000:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        started += 1
finally:
    if started > 1500: print('BREACH', started)
""",
        "ok",
        "error",
        "killed",
        "memory",
        "timeout",
    ),
    denied("kill a foreign process", "os.kill($VICTIM_PID, 9)", control=True),
    denied("ask whether it lives", "os.kill($VICTIM_PID, 0)", control=True),
    denied("stop the trainer", "import signal\nos.kill($TRAINER, signal.SIGSTOP)"),
    denied("kill everything", "os.kill(-1, 9)", "ok", "error", "killed"),
    denied("kill its parent", "os.kill(os.getppid(), 9)"),
    denied("kill the parent's group", "os.killpg(os.getpgid(os.getppid()), 9)", "ok", "error", "killed"),
    attack(
        "take a descriptor of the process at the other end of a socket",
        """
import os, socket, stat
pair = socket.socketpair()
for fd in range(3, 256):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            socket.socket(fileno=os.dup(fd)).getsockopt(socket.SOL_SOCKET, 77)  # SO_PEERPIDFD
            print('BREACH', fd)
    except OSError: pass
""",
        control=LINUX >= (6, 5),
    ),
    denied("signal it by fd", "import signal\nsignal.pidfd_send_signal(os.pidfd_open($VICTIM_PID), 9)", control=True),
    calls("queue a signal", "syscall(129, $VICTIM_PID, 0, (ctypes.c_int * 32)(9, 0, -1))"),
    calls("trace a process", "ptrace(16, $VICTIM_PID, 0, 0)", control=True),
    calls("trace its parent", "ptrace(16, os.getppid(), 0, 0)"),
    attack(
        "read another process's memory",
        """
import ctypes, os
class Vector(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
here, there = Vector(ctypes.addressof(buffer), 8), Vector(id(None), 8)
read = ctypes.CDLL(None, use_errno=True).process_vm_readv
for pid in (os.getppid(), $TRAINER):
    if read(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) > 0: print('BREACH')
""",
    ),
    denied("slow a process down", "os.setpriority(os.PRIO_PROCESS, $VICTIM_PID, 19)", control=True),
    denied("move a process to a core", "os.sched_setaffinity($VICTIM_PID, {0})", control=True),
    denied("lower its limits", "import resource as r\nr.prlimit($VICTIM_PID, r.RLIMIT_NOFILE, (1, 1))", control=True),
    denied("become root", "os.setuid(0)\nopen('$SECRET').read()"),
    denied("take back the privileges", "os.setresuid(0, 0, 0)\nos.setgroups([0])"),
    denied(
        "raise its own limits",
        "import resource as r\nr.setrlimit(r.RLIMIT_AS, (r.RLIM_INFINITY, r.RLIM_INFINITY))\nbytearray(3 << 30)",
        "ok",
        "error",
        "memory",
    ),
    calls("outlive its parent", "prctl(1, 0)", control=True),
    calls("become traceable", "prctl(4, 1)", control=True),
    calls("enter a namespace", "unshare(0x10000000)"),
]

NETWORK = [
    denied("connect over TCP", "socket.create_connection(('127.0.0.1', $TCP), 2)", control=True),
    denied("send over UDP", "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', $UDP))", control=True),
    denied("connect to a unix socket", "socket.socket(socket.AF_UNIX).connect('$UNIX')", control=True),
    denied("connect to an abstract socket", "socket.socket(socket.AF_UNIX).connect('\\0$MARK')", control=True),
    denied("listen", "socket.create_server(('127.0.0.1', 0))", control=True),
    denied("listen on all addresses", "socket.create_server(('', 0))", control=True),
    denied("fetch a page", "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:$TCP/', timeout=2)"),
    denied("make a raw socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    denied("talk to the kernel", "socket.socket(16, socket.SOCK_RAW, 0)", control=True),
    denied("make a packet socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    denied("make a vsock", "socket.socket(40, socket.SOCK_STREAM)"),
    denied("async network", "import asyncio\nasyncio.run(asyncio.open_connection('127.0.0.1', $TCP))", control=True),
    denied(
        "send on a socket pair to a foreign address",
        "a, b = socket.socketpair(type=socket.SOCK_DGRAM)\na.sendto(b'x', '$UNIX')",
    ),
    denied("reconnect a socket pair", "a, b = socket.socketpair(type=socket.SOCK_DGRAM)\na.connect('\\0$MARK')"),
]

FOREIGN = ("killed",) if os.uname().machine == "x86_64" else ("ok", "error")
KERNEL = [
    attack("a call of the x32 interface", "import ctypes\nctypes.CDLL(None).syscall(0x40000000 + 39)", *FOREIGN),
    attack(
        "a call of the 32-bit interface",
        """
import ctypes, mmap, os
if os.uname().machine == 'x86_64':
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex('b814000000cd80c3'))  # getpid by int 0x80
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    if ctypes.CFUNCTYPE(ctypes.c_int)(address)() == os.getpid(): print('BREACH')
""",
        *FOREIGN,
    ),
    denied("fake input on a terminal", "import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSTI, b'x')"),
]

EXHAUSTION = [
    endless("loop", "while True: pass"),
    endless("sleep", "import time\ntime.sleep(3600)"),
    endless("loop in C", "sum(iter(int, 1))"),
    endless("a power without end", "9**9**9", "memory"),
    endless("a regular expression without end", "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')"),
    endless(
        "loop and ignore signals",
        """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: pass
""",
    ),
    endless("stop itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", "killed"),
    endless("close everything and wait", "import os, time\nos.closerange(0, 256)\ntime.sleep(3600)", "killed"),
    endless("a thread", "import threading\nthreading.Thread(target=lambda: sum(iter(int, 1))).start()"),
    endless("an exit handler", "import atexit\natexit.register(lambda: sum(iter(int, 1)))"),
    endless("a finalizer", "class A:\n    def __del__(self):\n        while True: pass\na = A()\ndel a"),
    attack("wait for input", "import sys\nsys.stdin.read()\ninput()", "error"),
    endless("wait on a pipe", "import os\nr, w = os.pipe()\nos.read(r, 1)"),
    denied("memory at once", "x = bytearray(20 << 30)", "memory"),
    attack("memory bit by bit", "x = []\nwhile True: x.append(bytearray(1 << 20))", "memory"),
    denied("memory by a string", "x = 'a' * (20 << 30)", "memory"),
    denied("memory by a map", "import mmap\nm = mmap.mmap(-1, 20 << 30)", "error", "memory"),
    endless(
        "memory and go on",
        """
x = []
while True:
    try:
        while True: x.append(bytearray(1 << 20))
    except MemoryError: pass
""",
        *("memory", "killed"),
        timeout_s=2,
    ),
    denied("memory of numpy", "import numpy\nx = numpy.ones(20 << 30, numpy.uint8)", "memory"),
    calls("locked memory", "mlockall(3)"),
    attack("output", "while True: print('x' * 1000)", "output_limit"),
    attack("error output", "import sys\nwhile True: sys.stderr.write('x' * 1000)", "output_limit"),
    attack("output past Python", "import os\nwhile True: os.write(1, b'x' * 65536)", "output_limit"),
    attack(
        "output after closing the streams",
        "import os, sys\nfd = os.dup(1)\nsys.stdout.close()\nwhile True: os.write(fd, b'x' * 999)",
        "output_limit",
    ),
    attack("a traceback without end", "raise ValueError('x' * (1 << 24))", "error", "output_limit"),
    attack("one huge file", "f = open('f', 'wb')\nwhile True: f.write(bytes(1 << 20))", "error", "killed"),
    attack(
        "many large files",
        """
n = 0
while True:
    n += 1
    with open(f'f{n}', 'wb') as f: f.write(bytes(8 << 20))
""",
        "error",
        "killed",
    ),
    attack("many small files", "n = 0\nwhile True:\n    n += 1\n    open(f'f{n}', 'w').close()", "killed", "error"),
    attack("many directories", "import os\nn = 0\nwhile True:\n    n += 1\n    os.mkdir(f'd{n}')", "killed", "error"),
    attack("deep directories", "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')", "killed", "error"),
    denied("a sparse file", "open('f', 'wb').truncate(1 << 45)", "error", "killed"),
    attack("descriptors", "import os\nx = []\nwhile True: x.append(os.dup(0))", "error"),
    denied(
        "pipes that are full",
        """
kept = []
while len(kept) < 10000:
    r, w = os.pipe()
    os.set_blocking(w, False)
    try: os.write(w, bytes(1 << 20))
    except BlockingIOError: pass
    kept += [r, w]
""",
        "error",
    ),
    attack(
        "recursion",
        "import sys\nsys.setrecursionlimit(1 << 30)\ndef f(): return f()\nf()",
        "error",
        "killed",
        "memory",
        "timeout",
    ),
    attack("deep brackets", "eval('(' * 100000 + ')' * 100000)", "error", "killed", "memory"),
    attack("deep source", "(" * 50000, "error", "killed", "memory"),
    endless("source that grows in the compiler", "x = (1 << 60000000) * (1 << 60000000)\neval('9**9**9')", "memory"),
    denied("a zip bomb", "import zlib\nx = zlib.decompress(zlib.compress(bytes(1 << 24)))\ny = x * 10000", "memory"),
    attack("a hole in memory", "import ctypes\nctypes.string_at(0)", "killed"),
    attack("abort", "import os\nos.abort()", "killed"),
    attack("kill itself", "import os\nos.kill(os.getpid(), 9)", "killed"),
    attack("end by an alarm", "import signal, time\nsignal.alarm(1)\ntime.sleep(30)", "killed"),
]

FORGERIES = [
    attack("say that all is well", "print('status: ok, exit code 0')\nraise SystemExit(3)", "error"),
    attack("leave at once", "import os\nprint('fine', flush=True)\nos._exit(7)", "error"),
    attack(
        "write to every descriptor",
        """
import os
for fd in range(3, 256):
    for text in (b'ok', b'{"status": "ok"}\\n', bytes(64), b'\\x00\\x00\\x00\\x00'):
        try: os.write(fd, text)
        except OSError: pass
raise ValueError('after the forgery')
""",
        "error",
        "killed",
    ),
    attack(
        "write to every descriptor and crash",
        """
import os, ctypes
for fd in range(3, 256):
    try: os.write(fd, b'ok' * 50)
    except OSError: pass
ctypes.string_at(0)
""",
        "killed",
    ),
    attack("exit as if by a signal", "import os\nos._exit(137)", "error"),
    attack("a success with bad manners", "import sys\nsys.stdout = sys.stderr = None\nraise SystemExit('no')", "error"),
    attack(
        "an exception that lies",
        "class E(BaseException):\n    def __str__(self): raise self\n    __repr__ = __str__\nraise E",
        "error",
    ),
    attack("a hook that hides it", "import sys\nsys.excepthook = lambda *a: None\nraise ValueError", "error"),
    attack("a hook that exits", "import os, sys\nsys.excepthook = lambda *a: os._exit(1)\nraise ValueError", "error"),
    attack("no builtins", "import builtins\nfor n in dir(builtins): delattr(builtins, n)", "error", "killed", "ok"),
    attack("no modules", "import sys\nsys.modules.clear()\nraise ValueError", "error", "killed"),
]

SNOOPING = [
    attack(
        "search the living objects",
        """
import gc
needle = ''.join(['$HALF', '$OTHER'])
seen, todo = {id(needle)}, gc.get_objects()
while todo and len(seen) < 2_000_000:
    item = todo.pop()
    if id(item) in seen: continue
    seen.add(id(item))
    if isinstance(item, str) and needle in item or isinstance(item, bytes) and needle.encode() in item:
        print('BREACH')
    todo += gc.get_referents(item)
""",
        "ok",
        "error",
        "timeout",
        "memory",
    ),
    attack(
        "search the frames",
        """
import sys
frame = sys._getframe().f_back
while frame:
    for text in map(str, frame.f_locals.values()):
        if ''.join(['$HALF', '$OTHER']) in text: print('BREACH')
    frame = frame.f_back
""",
    ),
    attack(
        "search the environment",
        "import os, sys\nfound = f'{os.environ}{sys.argv}{sys.orig_argv}'\n"
        "if ''.join(['$HALF', '$OTHER']) in found: print('BREACH')",
    ),
    denied("look into other directories", "for name in os.listdir('..'):\n    print(os.listdir(f'../{name}'))"),
    attack(
        "read a neighbour's stack",
        """
import os
for pid in range(os.getpid() - 50, os.getpid()):
    try:
        open(f'/proc/{pid}/stat').read()
        print('BREACH')
    except OSError: pass
""",
    ),
]

ATTACKS = [*FILES, *PROCESSES, *NETWORK, *KERNEL, *EXHAUSTION, *FORGERIES, *SNOOPING]
