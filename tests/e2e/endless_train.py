"""A training script in which one session of each 25th row never stops asking the engine."""

from typing import Any

from agent_rl import ReactAgentLoop, register_agent_loop

EVERY, SESSION = 25, 2


class Endless:
    """verl's client, whose answers are discarded."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def generate(self, **request: Any) -> Any:
        while True:
            await self.client.generate(**request)


@register_agent_loop("endless")
class EndlessLoop(ReactAgentLoop):
    agent = "endless"

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        split = row["extra_info"]["split"]
        if split == "train" and int(row["index"]) % EVERY == 3 and row["session_id"] == SESSION:
            self.server_manager = Endless(self.server_manager)
        return await super().run(sampling_params, **row)


if __name__ == "__main__":
    from verl.trainer.main_ppo import main

    main()
