"""Workers choose the engines of their conversations."""

import pytest

from tests.support.forks import python

CLIENT = """
import asyncio, pickle, ray, verl
from collections import Counter
from types import SimpleNamespace
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from agent_rl.verl_adapter.routing import DirectClient, direct
from tests.verl_adapter.trainers import make

def workers(number, servers):
    config = make(config={"actor_rollout_ref.rollout.agent.num_workers": number}).config
    client = direct(LLMServerClient(config), manager(servers))
    return [pickle.loads(pickle.dumps(client)) for _ in range(number)]

def manager(servers):
    return SimpleNamespace(server_addresses=[f"s{at}" for at in range(servers)], server_handles=list(range(servers)))

async def conversations(clients, number, turns=3):
    chosen = {}
    for at, client in enumerate(clients):
        name = f"agent_loop_worker_{at}_0a1b"
        ray.get_runtime_context = lambda: SimpleNamespace(get_actor_name=lambda: name)
        for turn in range(turns):
            for conversation in range(number):
                server, _ = await client._acquire_server(f"{at} {conversation}")
                client._release_server(server)
                assert chosen.setdefault((at, conversation), server) == server
    return Counter(chosen.values())
"""


@pytest.mark.parametrize(
    ("workers", "servers", "conversations", "expected"), [(1, 1, 5, [5]), (4, 8, 10, [5] * 8), (3, 2, 5, [7, 8])]
)
def test_engines_are_taken_in_turn_and_kept(
    workers: int, servers: int, conversations: int, expected: list[int]
) -> None:
    code = f"asyncio.run(conversations(workers({workers}, {servers}), {conversations}))"
    assert python(f"{CLIENT}print(sorted({code}.values()))") == str(expected)


@pytest.mark.parametrize(
    ("client", "settings"),
    [
        ("FullyAsyncLLMServerClient", {}),
        ("LLMServerClient", {"actor_rollout_ref.rollout.router_config_path": "router.yaml"}),
        ("LLMServerClient", {"actor_rollout_ref.rollout.full_determinism": True}),
    ],
)
def test_other_clients_keep_verls_load_balancer(client: str, settings: dict[str, object]) -> None:
    code = f"client = {client}(make(config={settings}).config)\nprint(direct(client, manager(2)) is client)"
    assert python(CLIENT + code) == "True"
