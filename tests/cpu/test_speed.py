"""Each change works, and is still needed: the last test fails once verl does the thing itself."""

import pytest

from agent_rl.cpu import speed
from tests.support.forks import python

BUFFER = "import verl\nfrom tests.verl_adapter.trainers import make\nprint(make().replay_buffer.poll_interval)"


def test_the_replay_buffer_is_polled_at_our_interval() -> None:
    assert float(python(BUFFER)) == speed.POLL_INTERVAL_S


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
        (LOOP + "make(_target_='itertools.count'); print(len(by_hydra))", "1"),
        (FETCH, "['mask', 'multi_modal_inputs', 'raw_prompt', 'responses']"),
    ],
    ids=["polls every two seconds", "makes loops by hydra", "fetches all"],
)
def test_verl_would_be_slower(code: str, said: str) -> None:
    assert python(code, plugins="none") == said
