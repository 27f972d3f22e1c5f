"""Linux system calls by name, on x86-64 and aarch64, through one prepared ctypes function.

The tables contain only the calls that this package makes or that the seccomp filter allows. The module uses only the
standard library and no absolute imports of this package, because the sandbox's process imports these files under
another name.
"""

from __future__ import annotations

import ctypes
import os

_UNRESTRICTED = """
access:21:- alarm:37:- brk:12:214 chdir:80:49 clock_getres:229:114 clock_gettime:228:113 clock_nanosleep:230:115
close:3:57 copy_file_range:326:285 creat:85:- dup:32:23 dup2:33:- dup3:292:24 epoll_create:213:- epoll_create1:291:20
epoll_ctl:233:21 epoll_pwait:281:22 epoll_pwait2:441:441 epoll_wait:232:- eventfd:284:- eventfd2:290:19 exit:60:93
exit_group:231:94 faccessat:269:48 faccessat2:439:439 fadvise64:221:223 fchdir:81:50 fdatasync:75:83 fstat:5:80
fstatfs:138:44 fsync:74:82 ftruncate:77:46 futex:202:98 getcpu:309:168 getcwd:79:17 getdents:78:- getdents64:217:61
getegid:108:177 geteuid:107:175 getgid:104:176 getgroups:115:158 getitimer:36:102 getpeername:52:205 getpgid:121:155
getpgrp:111:- getpid:39:172 getppid:110:173 getrandom:318:278 getresgid:120:150 getresuid:118:148 getrlimit:97:163
getrusage:98:165 getsid:124:156 getsockname:51:204 gettid:186:178 gettimeofday:96:169 getuid:102:174 lseek:8:62
lstat:6:- madvise:28:233 mincore:27:232 mkdir:83:- mkdirat:258:34 mmap:9:222 mprotect:10:226 mremap:25:216
msync:26:227 munmap:11:215 nanosleep:35:101 newfstatat:262:79 pause:34:- pipe:22:- pipe2:293:59 poll:7:- ppoll:271:73
pread64:17:67 preadv:295:69 preadv2:327:286 pselect6:270:72 pwrite64:18:68 pwritev:296:70 pwritev2:328:287 read:0:63
readlink:89:- readlinkat:267:78 readv:19:65 recvfrom:45:207 rename:82:- renameat:264:38 restart_syscall:219:128
rmdir:84:- rseq:334:293 rt_sigaction:13:134 rt_sigpending:127:136 rt_sigprocmask:14:135 rt_sigreturn:15:139
rt_sigsuspend:130:133 rt_sigtimedwait:128:137 sched_get_priority_max:146:125 sched_get_priority_min:147:126
sched_getaffinity:204:123 sched_getparam:143:121 sched_getscheduler:145:120 sched_yield:24:124 select:23:-
sendfile:40:71 set_robust_list:273:99 set_tid_address:218:96 setitimer:38:103 setrlimit:160:164 shutdown:48:210
sigaltstack:131:132 stat:4:- statfs:137:43 statx:332:291 sysinfo:99:179 time:201:- times:100:153 umask:95:166
uname:63:160 unlink:87:- unlinkat:263:35 wait4:61:260 waitid:247:95 write:1:64 writev:20:66
"""  # name:x86_64:aarch64, from <asm/unistd.h>
_OTHERS = """
capget:125:90 capset:126:91 clone:56:220 clone3:435:435 close_range:436:436 fcntl:72:25 flock:73:32 getsockopt:55:209
ioctl:16:29 kill:62:129 landlock_add_rule:445:445 landlock_create_ruleset:444:444 landlock_restrict_self:446:446
mount:165:40 open:2:- openat:257:56 openat2:437:437 pivot_root:155:41 prctl:157:167 prlimit64:302:261 seccomp:317:277
sendto:44:206 socketpair:53:199 tgkill:234:131 umount2:166:39 unshare:272:97
"""
UNRESTRICTED = [entry.partition(":")[0] for entry in _UNRESTRICTED.split()]
"""The calls that the seccomp filter allows with any arguments."""

PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE = 1, 3, 4
AUDIT_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINE = os.uname().machine


def numbers_of(machine: str) -> dict[str, int]:
    """Return the system call numbers of `machine` ("x86_64" or "aarch64"), by name, for the calls that exist there."""
    column = list(AUDIT_ARCHES).index(machine) + 1
    rows = [entry.split(":") for entry in (_UNRESTRICTED + _OTHERS).split()]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def supported() -> bool:
    """Whether this is a 64-bit Linux process on a supported architecture."""
    return os.uname().sysname == "Linux" and MACHINE in AUDIT_ARCHES and ctypes.sizeof(ctypes.c_void_p) == 8


NUMBERS = numbers_of(MACHINE) if supported() else {}

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [ctypes.c_long] * 7


def call(name: str, a: int = 0, b: int = 0, c: int = 0, d: int = 0, e: int = 0, f: int = 0) -> int:
    """Make the system call `name`; pointers are passed as addresses.

    Returns:
        The kernel's return value.

    Raises:
        OSError: the call failed; the error contains the kernel's errno and the call's name.
    """
    result: int = _syscall(NUMBERS[name], a, b, c, d, e, f)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
