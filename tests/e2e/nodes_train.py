"""A user's own training script for several nodes: its loop notes where it runs, and calls the user's tool once."""

from typing import Any

from agent_rl import ReactAgentLoop, register_agent_loop
from agent_rl.trajectory import ToolCall


@register_agent_loop("noting")
class NotingLoop(ReactAgentLoop):
    agent = "noting"

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        from pathlib import Path

        import ray

        folder = Path(row["extra_info"]["notes"])
        (folder / f"loop_{ray.get_runtime_context().get_node_id()}").touch()
        async with self.session(row) as session:
            (result,) = await session.run([ToolCall("where", {"folder": str(folder)})])
        assert result.text == "noted", result.text
        return await super().run(sampling_params, **row)


if __name__ == "__main__":
    from verl.trainer.main_ppo import main

    main()
