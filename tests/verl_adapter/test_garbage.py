"""Garbage is collected when no episode runs, if there is enough of it; in a process whose settings it may change."""

import subprocess
import sys

PROGRAM = """
import asyncio, gc
from agent_rl.verl_adapter.garbage import AT_MOST, PAUSE_S, WORTHWHILE, collected_in_pauses

collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase) if phase == "start" else None)
kept = []

async def episode(objects, until):
    async with collected_in_pauses():
        kept.extend([] for _ in range(objects))
        await until.wait()

async def main(*sizes):
    collections.clear()
    ends = [asyncio.Event() for _ in sizes]
    tasks = [asyncio.create_task(episode(size, end)) for size, end in zip(sizes, ends)]
    await asyncio.sleep(0)
    seen = []
    for end, task in zip(ends, tasks):
        end.set()
        await task
        seen.append(len(collections))
    await asyncio.sleep(2 * PAUSE_S)
    return [*seen, len(collections)]

print(asyncio.run(main(100, 100)))
print(asyncio.run(main(WORTHWHILE, WORTHWHILE)))
print(asyncio.run(main(2 * AT_MOST))[0] > 0, gc.get_threshold()[0] == AT_MOST, gc.get_freeze_count() > 0)
"""


def test_a_pause_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["[0, 0, 0]", "[0, 0, 1]", "True True True"]
