"""Sender and receiver as verl drives them, in one process."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_rl.errors import ConfigError


@pytest.fixture(scope="module")
def engine_class() -> Any:
    from agent_rl.cpu.shared_memory import SharedMemoryCheckpointEngine

    return SharedMemoryCheckpointEngine


def ready(engine_class: Any, actors: int, servers: int) -> tuple[list[Any], list[Any]]:
    senders = [engine_class(bucket_size=1, is_master=rank == 0) for rank in range(actors)]
    receivers = [engine_class(bucket_size=1) for _ in range(servers)]
    metadata = [each.prepare() for each in (*senders, *receivers)]
    for group, kwargs in zip((senders, receivers), engine_class.build_topology(actors, servers, metadata), strict=True):
        for each, folder in zip(group, kwargs["folder"], strict=True):
            each.init_process_group(folder)
    return senders, receivers


def test_every_server_gets_the_weights_and_nothing_is_left(engine_class: Any) -> None:
    senders, receivers = ready(engine_class, 2, 2)
    embedding = torch.randn(4, 3)
    weights = {"embedding": embedding, "head": embedding, "norm": torch.ones(3, dtype=torch.bfloat16)}  # a tied pair

    async def received(engine: Any) -> dict[str, torch.Tensor]:
        return {name: tensor async for name, tensor in engine.receive_weights()}

    async def exchange() -> list[Any]:
        waiting = [asyncio.create_task(received(each)) for each in receivers]
        await asyncio.sleep(0.05)  # the receivers are there first
        for sender in senders:
            await sender.send_weights(iter(weights.items()))
        return await asyncio.gather(*waiting)

    for got in asyncio.run(exchange()):
        assert got.keys() == weights.keys()
        assert all(
            torch.equal(got[name], tensor) and got[name].dtype == tensor.dtype for name, tensor in weights.items()
        )
    folder = Path(senders[0]._folder)
    assert list(folder.iterdir()) == [folder / "model.pt"]
    for each in (*senders, *receivers):
        each.finalize()
    assert not folder.exists()


def test_two_machines_are_refused(engine_class: Any) -> None:
    here, there = {"folder": "/x", "machine": os.uname().nodename}, {"folder": "", "machine": "elsewhere"}
    with pytest.raises(ConfigError, match="must share a machine"):
        engine_class.build_topology(1, 1, [here, there])
