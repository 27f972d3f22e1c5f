"""A training script whose engine requests and sessions fail for the share `FAILING_SHARE` of the trajectories."""

import os
import random
from typing import Any

from agent_rl import ReactAgentLoop, register_agent_loop


class FailingClient:
    """verl's client, except that some trajectories send a request that the engine refuses, or lose their session.

    Args:
        client: verl's client.
        draw: a number from 0 to 1: below `share`, the request is refused; below twice `share`, the session breaks.
        share: the share of trajectories that fail in each of these two ways.
    """

    def __init__(self, client: Any, draw: float, share: float) -> None:
        self.client, self.draw, self.share = client, draw, share

    async def generate(self, **request: Any) -> Any:
        if self.draw < self.share:
            request["sampling_params"] = {**request["sampling_params"], "temperature": -1.0}
        output = await self.client.generate(**request)
        if self.share <= self.draw < 2 * self.share:
            raise ConnectionResetError("the session broke after its turn was sampled")
        return output


@register_agent_loop("failing")
class FailingLoop(ReactAgentLoop):
    agent = "failing"

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        draw = random.Random(f"{row['index']} {row['session_id']}").random()
        self.server_manager = FailingClient(self.server_manager, draw, float(os.environ["FAILING_SHARE"]))
        return await super().run(sampling_params, **row)


if __name__ == "__main__":
    from verl.trainer.main_ppo import main

    main()
