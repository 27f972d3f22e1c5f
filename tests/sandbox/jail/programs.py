"""Programs for confined children; each fills `report` with the outcomes of what it tried.

They use `tried`, `scratch` and `outside` of `tests.sandbox.tiers.reported`.
"""

FILES = """
import os, socket
def write(path): os.close(os.open(path, os.O_WRONLY))
def create(path): os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
def cut(path): os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))
def empty(path): os.close(os.open(path, 3 | os.O_TRUNC))
secret, mine = outside + "/secret", scratch + "/mine"
open(mine, "w").close()
for name, act, *arguments in [
    ("read outside", open, secret), ("list outside", os.listdir, outside), ("write outside", write, secret),
    ("append outside", open, secret, "a"), ("create outside", create, outside + "/new"),
    ("remove outside", os.remove, secret),
    ("rename outside", os.rename, secret, outside + "/moved"), ("move out", os.rename, mine, outside + "/mine"),
    ("move in", os.rename, secret, scratch + "/stolen"),
    ("make a directory outside", os.mkdir, outside + "/directory"),
    ("truncate by path", os.truncate, mine, 0), ("cut through a read-only descriptor", cut, mine),
    ("empty with neither reading nor writing", empty, secret),
    ("hard link", os.link, mine, scratch + "/link"), ("hard link outside", os.link, secret, scratch + "/link"),
    ("symbolic link", os.symlink, "/", scratch + "/root"), ("fifo", os.mkfifo, scratch + "/fifo"),
    ("device", os.mknod, scratch + "/device", 0o020600, os.makedev(1, 1)),
    ("chmod", os.chmod, mine, 0o777), ("chmod outside", os.chmod, secret, 0o777), ("chown", os.chown, mine, 0, 0),
    ("utime", os.utime, mine), ("utime outside", os.utime, secret), ("xattr", os.setxattr, mine, "user.x", b"x"),
    ("xattr outside", os.getxattr, secret, "user.x"), ("chroot", os.chroot, scratch),
    ("passwords", open, "/etc/passwd"), ("shadow", open, "/etc/shadow"), ("root", os.listdir, "/"),
    ("tmp", os.listdir, "/tmp"),
    ("own environment", open, "/proc/self/environ"), ("maps", open, "/proc/self/maps"),
    ("memory", open, "/proc/self/mem"),
    ("parent's environment", open, f"/proc/{os.getppid()}/environ"), ("processes", os.listdir, "/proc"),
    ("write the library", create, os.__file__ + ".new"), ("change the library", write, os.__file__),
    ("remove the library", os.remove, os.__file__), ("cut the library", cut, os.__file__),
    ("terminal", open, "/dev/tty"), ("kernel memory", open, "/dev/mem"), ("kernel log", open, "/dev/kmsg"),
    ("handle", os.mkdir, scratch + "/../other"), ("shared memory", create, "/dev/shm/x"),
    ("space beyond the size", os.posix_fallocate, os.open(mine, os.O_RDWR), 0, 10),
]:
    report[name] = tried(act, *arguments)
"""

PROCESSES = """
import asyncio, ctypes, fcntl, os, resource, signal, socket, subprocess, sys, threading
own, parent = os.getpid(), os.getppid()
def connect(family, kind, address): socket.socket(family, kind).connect(address)
def spawn(): os.posix_spawn("/bin/true", ["true"], {})
def limit(which): resource.setrlimit(which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
reader, writer = os.pipe()
for name, act, *arguments in [
    ("fork", os.fork), ("run", subprocess.run, ["/bin/true"]), ("shell", os.system, "true"),
    ("posix_spawn", spawn), ("execute", os.execv, "/bin/true", ["true"]),
    ("execute itself", os.execv, sys.executable, ["x"]),
    ("execute a missing file", os.execv, "/no", ["no"]), ("execute a descriptor", os.execve, reader, ["x"], {}),
    ("signal the parent", os.kill, parent, 0), ("signal init", os.kill, 1, 0), ("signal all", os.kill, -1, 0),
    ("signal the group", os.killpg, os.getpgrp(), 0), ("pidfd", os.pidfd_open, parent),
    ("limits of the parent", resource.prlimit, parent, resource.RLIMIT_CPU),
    ("memory limit", limit, resource.RLIMIT_AS), ("file limit", limit, resource.RLIMIT_FSIZE),
    ("open files", limit, resource.RLIMIT_NOFILE), ("cpu limit", limit, resource.RLIMIT_CPU),
    ("cores", limit, resource.RLIMIT_CORE), ("priority", os.setpriority, os.PRIO_PROCESS, parent, 5),
    ("nice", os.nice, 5),
    ("affinity", os.sched_setaffinity, 0, {0}),
    ("scheduler", os.sched_setscheduler, 0, os.SCHED_BATCH, os.sched_param(0)),
    ("setuid", os.setuid, 0), ("setgid", os.setgid, 0), ("setgroups", os.setgroups, [0]), ("setsid", os.setsid),
    ("setpgid", os.setpgid, 0, os.getsid(0)), ("host name", socket.sethostname, "x"),
    ("memory file", os.memfd_create, "x"),
    ("own a descriptor", fcntl.fcntl, reader, fcntl.F_SETOWN, parent),
    ("signal of a descriptor", fcntl.fcntl, reader, 10, 9),
    ("lease", fcntl.fcntl, reader, fcntl.F_SETLEASE, 0), ("bigger pipe", fcntl.fcntl, reader, 1031, 1 << 20),
    ("type into a terminal", fcntl.ioctl, 0, 0x5412, b"x"), ("splice", os.sendfile, 99, 98, 0, 1),
    ("tcp", connect, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 9)),
    ("bound", socket.create_server, ("127.0.0.1", 0)),
    ("udp", connect, socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 9)), ("tcp 6", socket.socket, socket.AF_INET6),
    ("unix", socket.socket, socket.AF_UNIX), ("netlink", socket.socket, 16, socket.SOCK_RAW),
    ("packet", socket.socket, 17, 3),
    ("raw", socket.socket, socket.AF_INET, socket.SOCK_RAW, 1), ("vsock", socket.socket, 40),
    ("kernel crypto", socket.socket, 38, 5),
    ("datagram pair", socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM),
    ("set a socket option", socket.socketpair()[0].setsockopt, socket.SOL_SOCKET, socket.SO_SNDBUF, 4096),
    ("pass a descriptor", socket.send_fds, socket.socketpair()[0], [b"x"], [0]),
]:
    report[name] = tried(act, *arguments)
"""

PRIVILEGES = """
import ctypes, os
prctl, death_signal = ctypes.CDLL(None).prctl, ctypes.c_int()
prctl(2, ctypes.byref(death_signal))
report["ids"], report["groups"] = [*os.getresuid(), *os.getresgid()], os.getgroups()
report["dumpable"], report["death signal"] = prctl(3), death_signal.value
report["no new privileges"], report["seccomp"] = prctl(39, 0, 0, 0, 0), prctl(21)
report["leader"] = os.getsid(0) == os.getpid()
report["descriptors"] = [number for number in range(64) if tried(os.fstat, number) == "done"]
"""

LIMITS = """
import resource, threading
def big(): return bytearray(200 << 20)
def long():
    with open(scratch + "/long", "wb", buffering=0) as file:
        for _ in range(20): file.write(bytes(1 << 16))
def many(): return [os.dup(0) for _ in range(100)]
report["small"] = len(bytearray(20 << 20))
report |= {act.__name__: tried(act) for act in (big, long, many)}
report["seconds"] = resource.getrlimit(resource.RLIMIT_CPU)
event, report["threads"] = threading.Event(), 0
def start():
    threading.stack_size(1 << 16)
    while report["threads"] < 64:
        threading.Thread(target=event.wait, daemon=True).start()
        report["threads"] += 1
tried(start)
event.set()
"""

ALLOWED = """
import asyncio, concurrent.futures, ctypes, decimal, math, mmap, os, pathlib, random, resource, select
import shutil, signal, socket, sqlite3, tempfile, threading, time, unicodedata, uuid, zoneinfo
os.chdir(scratch)
tempfile.tempdir = scratch
def files():
    path = pathlib.Path("über.txt")
    path.write_text("é" * 10, encoding="utf-8")
    with open(path, "r+b") as file:
        file.truncate(4)
        with mmap.mmap(file.fileno(), 4) as mapped: mapped[0] = 65
    shutil.copyfile(path, "copy")
    pathlib.Path("deep/down").mkdir(parents=True)
    os.replace("copy", "deep/down/copy")
    with tempfile.NamedTemporaryFile() as file: file.write(b"x")
    with tempfile.TemporaryFile() as file: file.write(b"y")
    with tempfile.TemporaryDirectory() as directory: open(directory + "/x", "w").close()
    with sqlite3.connect("base.db") as base: base.execute("create table t (x)")
    with sqlite3.connect("log.db") as base:
        assert base.execute("pragma journal_mode=wal").fetchall() == [("wal",)]
        base.execute("create table t (x)")
    shutil.rmtree("deep")
    assert path.exists() and not os.path.exists("deep") and os.getcwd() == os.path.realpath(scratch)
def numbers():
    assert len(str(3 ** 5000)) == 2386
    decimal.getcontext().prec = 50
    assert str(decimal.Decimal(2).sqrt()).startswith("1.414213562373095048801688724209698078569671875")
    assert math.factorial(200) % 7 == 0 and unicodedata.name("é")
    assert len(os.urandom(8)) == 8 and 0 <= random.SystemRandom().random() < 1 and uuid.uuid4() and random.random()
def threads():
    with concurrent.futures.ThreadPoolExecutor(4) as pool: assert sum(pool.map(abs, range(-9, 0))) == 45
    event = threading.Event()
    threading.Timer(0.01, event.set).start()
    assert event.wait(5)
async def work(): return await asyncio.gather(asyncio.sleep(0.01, 1), asyncio.to_thread(abs, -2))
def loop(): assert asyncio.run(work()) == [1, 2]
def sockets():
    left, right = socket.socketpair()
    left.sendall(b"x")
    assert select.select([right], [], [], 1)[0] and right.recv(1) == b"x"
def times():
    assert time.time() > 1.6e9 and time.monotonic() and time.localtime() and time.process_time() >= 0
    time.sleep(0.001)
def signals():
    seen = []
    for number in (signal.SIGUSR1, signal.SIGALRM): signal.signal(number, lambda number, frame: seen.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    time.sleep(0.05)
    assert len(seen) == 3
def system():
    assert os.cpu_count() and os.sched_getaffinity(0) and os.uname() and resource.getrusage(0) and os.getloadavg
    assert resource.getrlimit(resource.RLIMIT_AS) and os.umask(0o77) >= 0 and not os.isatty(os.pipe()[0])
    ctypes.CDLL(None).getpid()
    with open("/dev/null", "w") as null: null.write("x")
    with open("/dev/urandom", "rb") as source: assert source.read(4)
for act in (files, numbers, threads, loop, sockets, times, signals, system):
    try:
        report[act.__name__] = tried(act)
    except Exception as error:
        report[act.__name__] = repr(error)
"""
