"""Each change works, and is still needed: the last test fails once verl does the thing itself."""

import pytest

from agent_rl.cpu import speed
from tests.support.forks import python

BUFFER = "import verl\nfrom tests.verl_adapter.trainers import make\nprint(make().replay_buffer.poll_interval)"


def test_the_replay_buffer_is_polled_at_our_interval() -> None:
    assert float(python(BUFFER)) == speed.POLL_INTERVAL_S


CLIENT = (
    "import asyncio, verl\nfrom types import SimpleNamespace\n"
    "from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient\n"
    "calls = []\n"
    "class Method:\n"
    "    def __init__(self, name, result): self.name, self.result = name, result\n"
    "    async def answer(self): return self.result\n"
    "    def remote(self, **_): calls.append(self.name); return self.answer()\n"
    "def balancer(servers):\n"
    "    known = dict(get_all_servers=servers, require_acquire_fields=[], require_release_fields=[],"
    " acquire_server=(servers[0], None))\n"
    "    methods = {name: Method(name, result) for name, result in known.items()}\n"
    "    return SimpleNamespace(**methods, release_server=SimpleNamespace("
    "remote=lambda **_: calls.append('release_server')))\n"
    "async def turns(client):\n"
    "    for turn in range(4):\n"
    "        server, _ = await client._acquire_server('request')\n"
    "        client._release_server(server, request_id='request')\n"
    "    return [calls.count(name) for name in ('acquire_server', 'release_server')]\n"
)


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("LLMServerClient(None, balancer(['a']))", "[1, 0]"),
        ("LLMServerClient(None, balancer(['a', 'b']))", "[4, 4]"),
        ("FullyAsyncLLMServerClient(None, balancer(['a']))", "[4, 4]"),
    ],
)
def test_a_single_server_is_acquired_once(client: str, expected: str) -> None:
    assert python(CLIENT + f"print(asyncio.run(turns({client})))") == expected


LOOP = (
    "import verl, hydra, hydra.utils\nfrom verl.experimental.agent_loop import agent_loop\n"
    "by_hydra = []\nhydra.utils.instantiate = lambda **_: by_hydra.append(1)\n"
    "def make(**config): return agent_loop.hydra.utils.instantiate(config=config, start=3)\n"
)


def test_only_plain_loops_are_made_without_hydra() -> None:
    code = (
        "count = 'itertools.count'\n"
        "made = make(_target_=count), make(_target_=count, step=2), len(by_hydra)\n"
        "try: make(_target_='no.thing')\n"
        "except hydra.errors.InstantiationException as error: print(*made, str(error).split(': ')[0])"
    )
    assert python(LOOP + code) == "count(3) None 1 no.thing cannot be created"


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


FETCH = """
import asyncio, torch, verl
from types import SimpleNamespace
from transfer_queue import BatchMeta
from verl.utils import transferqueue_utils as module

meta = BatchMeta(
    global_indexes=[0, 1],
    partition_ids=["train"] * 2,
    field_schema={
        name: {"dtype": None, "shape": None, "is_nested": False, "is_non_tensor": kind is str}
        for name, kind in {"responses": int, "raw_prompt": str, "multi_modal_inputs": str, "mask": int}.items()
    },
)
asked = []
async def data(found):
    asked.append(sorted(found.field_names))
    return {}
module.tq.get_client = lambda: SimpleNamespace(async_get_data=data)
asyncio.run(module._async_meta_to_realdata(meta))
print(asked[0])
"""


def test_a_training_worker_fetches_tensors_and_images() -> None:
    assert python(FETCH) == "['mask', 'multi_modal_inputs', 'responses']"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (BUFFER, "2.0"),  # seconds between two looks
        (CLIENT + "print(asyncio.run(turns(LLMServerClient(None, balancer(['a'])))))", "[4, 4]"),
        (LOOP + "make(_target_='itertools.count'); print(len(by_hydra))", "1"),
        (PUTS + "asyncio.run(main(put('a', 1), put('b', 2)))\nprint(len(stored))", "2"),
        (FETCH, "['mask', 'multi_modal_inputs', 'raw_prompt', 'responses']"),
    ],
    ids=["polls every two seconds", "asks the balancer", "makes loops by hydra", "stores each alone", "fetches all"],
)
def test_verl_would_be_slower(code: str, said: str) -> None:
    assert python(code, plugins="none") == said
