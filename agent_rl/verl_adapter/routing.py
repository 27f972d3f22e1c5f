"""`DirectClient`: lets each agent-loop worker choose the engine for a conversation itself, in synchronous training.

verl has one load balancer for the whole cluster, a process that receives two of the three actor calls of each turn and
remembers the engines of 10,000 conversations. At several thousand turns per second, turns wait for this process, and
with more than 10,000 concurrent conversations, turns move to engines that have not cached their conversations. In
synchronous training, all conversations of a step start together and the engines stay the same, so workers that assign
the engines in turn balance the load equally well. The asynchronous modes, which start conversations at any time, use
verl's client.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import ray
from cachetools import LRUCache
from verl.workers.rollout.llm_server import LLMServerClient

MOST_CONVERSATIONS = 1 << 13
"""Number of conversations whose engines a worker remembers, which takes 2 MB of memory."""
_NUMBER = re.compile(r"agent_loop_worker_(\d+)")
"""The pattern of verl's names for agent-loop workers."""


class DirectClient(LLMServerClient):
    """verl's client without a load balancer; a conversation stays with the engine that has cached it.

    Args:
        config: verl's whole configuration.
        servers: the engines' actors by address.
    """

    def __init__(self, config: Any, servers: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._servers = list(servers.items())
        self._chosen: LRUCache[str, tuple[str, Any]] = LRUCache(MOST_CONVERSATIONS)

    @cached_property
    def _turns(self) -> itertools.cycle[tuple[str, Any]]:
        """An endless iterator over the engines, which begins at a different engine in each worker."""
        name = _NUMBER.search(ray.get_runtime_context().get_actor_name() or "")
        workers = self.config.actor_rollout_ref.rollout.agent.num_workers
        first = int(name[1]) * len(self._servers) // workers if name else 0
        return itertools.cycle([*self._servers[first:], *self._servers[:first]])

    async def _acquire_server(self, request_id: str, **_: Any) -> tuple[str, Any]:
        if request_id not in self._chosen:
            self._chosen[request_id] = next(self._turns)
        return self._chosen[request_id]

    def _release_server(self, server_id: str, request_id: str | None = None) -> None:
        """Do nothing, because no requests are counted."""


def direct(client: Any, manager: Any) -> Any:
    """Return a `DirectClient` instead of verl's client for synchronous training, unless the user has set a router.

    Args:
        client: the client that verl's trainer would pass to the workers.
        manager: verl's `LLMServerManager`.
    """
    rollout = client.config.actor_rollout_ref.rollout
    if type(client) is not LLMServerClient or rollout.router_config_path or rollout.full_determinism:
        return client
    return DirectClient(client.config, dict(zip(manager.server_addresses, manager.server_handles, strict=True)))
