"""What the zygote counts of a running program, beside what lies in its directory."""

import asyncio
import contextlib
import os

from agent_rl.sandbox import PythonSandbox
from agent_rl.sandbox.jail.scratch import unnamed_bytes
from tests.support.processes import children


async def test_deleted_files_are_found():
    code = """
import mmap, os, time
kept = []
for n in range(4):
    with open('f', 'w+b') as f:
        f.write(bytes(1 << 20))
        f.flush()
        kept.append(mmap.mmap(f.fileno(), 4096))
    os.unlink('f')
kept.pop().close()
kept.append(mmap.mmap(-1, 1 << 20))  # memory
names = [fd for fd in range(3, 64) if os.path.exists(f'/proc/self/fd/{fd}')]
os.close(names[0])  # what is mapped keeps the file all the same
print('made', flush=True)
time.sleep(1)
"""
    found = set()
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    async with PythonSandbox(packages=()) as sandbox:
        await sandbox.run("")
        zygote = sandbox._pool.ready("lean").pid
        running = asyncio.ensure_future(sandbox.run(code))
        while not running.done():
            await asyncio.sleep(0.05)
            for pid in children(zygote):
                with contextlib.suppress(FileNotFoundError):  # it has ended
                    found.add(unnamed_bytes(proc, pid, os.readlink(f"/proc/{pid}/cwd"), 7 << 20))
    os.close(proc)
    execution = running.result()
    assert (execution.status, execution.stdout) == ("ok", "made\n"), execution
    assert max(found) == (2 << 20) + (7 << 20)  # two are open, one is mapped alone: it may be as large as a file can be
