"""Trajectories that end together are stored together, and verl alone still stores each by itself."""

from tests.support.forks import python

PUTS = """
import asyncio, torch, verl
from types import SimpleNamespace
from verl.trainer.ppo.v1 import agent_loop_tq as module

stored = []
class Queue:
    async def async_kv_batch_put(self, keys, partition_id, fields=None, tags=None):
        if "bad" in keys:
            raise OSError("full")
        values = None if fields is None else fields["x"].tolist()
        stored.append((partition_id, "".join(keys), values, [tag["n"] for tag in tags]))
    async def async_kv_put(self, key, partition_id, tag):
        await self.async_kv_batch_put([key], partition_id, None, [tag])

if hasattr(module.tq, "_queue"):
    module.tq = type(module.tq)(Queue(), module.tq._to_tensordict)
else:
    module.tq = Queue()

async def put(key, value, partition="train", **more):
    fields = module.list_of_dict_to_tensordict([{"x": torch.tensor(value), **more}])
    await module.tq.async_kv_batch_put(keys=[key], fields=fields, tags=[{"n": value}], partition_id=partition)

async def main(*puts):
    return [repr(each) for each in await asyncio.gather(*puts, return_exceptions=True)]
"""


def test_puts_of_one_partition_are_stored_together() -> None:
    code = """
tag = module.tq.async_kv_put(key="t", partition_id="train", tag={"n": 5})
print(asyncio.run(main(put("a", 1), put("b", 2), tag, put("c", 3, "val"), put("d", 4, y=1))), stored)
"""
    expected = [("train", "ab", [1, 2], [1, 2]), ("train", "t", None, [5]), ("val", "c", [3], [3])]
    assert python(PUTS + code) == f"{['None'] * 5} {[*expected, ('train', 'd', [4], [4])]}"


def test_what_cannot_be_stored_fails_all_that_were_stored_with_it() -> None:
    code = """
print(asyncio.run(main(put("a", 1), put("bad", 2), put("c", 3, "val"))), stored)
"""
    expected = ["OSError('full')", "OSError('full')", "None"]
    assert python(PUTS + code) == f"{expected} [('val', 'c', [3], [3])]"


def test_a_queue_of_puts_can_be_sent_to_a_worker() -> None:
    code = "from ray import cloudpickle\nprint(type(cloudpickle.loads(cloudpickle.dumps(module.tq))._queue).__name__)"
    assert python(PUTS + code) == "Queue"


def test_verl_stores_each_alone() -> None:
    code = "asyncio.run(main(put('a', 1), put('b', 2)))\nprint(len(stored))"
    assert python(PUTS + code, plugins="none") == "2"
