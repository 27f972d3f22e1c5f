"""A user's own training script: registers a loop of its own, then starts verl's trainer.

The loop is `react_agent` with additions: once a step it asks the engine for its weights and keeps them in a file,
and has a program run by the tool `python` where the run has it, which nobody could expect of an untrained model. Every
second row's episode is short: a step that waits for half of the trajectories then meets the others in generation.
"""

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from agent_rl import ReactAgentLoop, register_agent_loop
from agent_rl.trajectory import ToolCall

PARAMETERS = (
    "model.embed_tokens.weight",
    "model.layers.0.self_attn.k_proj.weight",
    "model.layers.1.mlp.down_proj.weight",
    "model.norm.weight",
    "lm_head.weight",
)
SHORT = 48
"""Tokens."""


def engine_weights(address: str) -> dict[str, Any]:
    found = {}
    for name in PARAMETERS:
        request = urllib.request.Request(
            f"http://{address}/get_weights_by_name",
            data=json.dumps({"name": name, "truncate_size": 100_000}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            found[name] = json.load(response)
    return found


@register_agent_loop("weights_probe")
class WeightsProbe(ReactAgentLoop):
    agent = "weights_probe"

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        if int(row["index"]) % 2:
            self.limits = self.limits._replace(response_length=SHORT)
        target = Path(os.environ["PROBE_DIR"]) / f"engine_{int(row['global_steps'])}.json"
        try:
            target.touch(exist_ok=False)
        except FileExistsError:
            return await super().run(sampling_params, **row)
        target.with_name("parent.txt").write_text(" ".join(psutil.Process(os.getppid()).cmdline()))
        if "python" in {tool.name for tool in self.tools}:
            target.with_name(f"python_{int(row['global_steps'])}.txt").write_text(await self.use_python(row))
        import ray

        host, port = await ray.get_actor("sglang_server_0_0").get_server_address.remote()
        target.write_text(json.dumps(await self.loop.run_in_executor(None, engine_weights, f"{host}:{port}")))
        return await super().run(sampling_params, **row)

    async def use_python(self, row: dict[str, Any]) -> str:
        code = "import numpy, os\nprint(os.getppid())\nint(numpy.arange(5).sum())"
        async with self.session(row) as session:
            (result,) = await session.run([ToolCall("python", {"code": code})])
        return result.text


if __name__ == "__main__":
    from verl.trainer.main_ppo import main

    main()
