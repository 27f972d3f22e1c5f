import subprocess
import sys

BETWEEN_BLOCKS = """
import psutil
from agent_rl.work.memory import return_memory
blocks = [bytearray(1000) for _ in range(100_000)]
blocks[:] = blocks[::100]
before = psutil.Process().memory_info().rss
return_memory()
print(before - psutil.Process().memory_info().rss)
"""


def test_free_pages_between_blocks_in_use_are_returned():
    done = subprocess.run([sys.executable, "-c", BETWEEN_BLOCKS], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50e6
