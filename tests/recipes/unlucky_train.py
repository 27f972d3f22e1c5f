"""A training script whose engine fails in the greedy episode of every second problem."""

from typing import Any

from agent_rl import ReactAgentLoop, register_agent_loop
from agent_rl.errors import EngineError
from agent_rl.verl_adapter.algorithms.remax import GREEDY_SESSION


@register_agent_loop("unlucky")
class Unlucky(ReactAgentLoop):
    agent = "unlucky"

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        if row["session_id"] == GREEDY_SESSION:
            assert sampling_params["temperature"] == 0
            if row["index"] % 2:
                raise EngineError("the engine went away")
        return await super().run(sampling_params, **row)


if __name__ == "__main__":
    from verl.trainer.main_ppo import main

    main()
