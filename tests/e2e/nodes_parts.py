"""A user's own tool and reward function, which note on which Ray node they run."""

from pathlib import Path
from typing import Any, ClassVar

import ray

from agent_rl.tools import Tool


def note(folder: str, what: str) -> None:
    (Path(folder) / f"{what}_{ray.get_runtime_context().get_node_id()}").touch()


class Where(Tool):
    name = "where"
    description = "Notes where it runs."
    parameters: ClassVar[dict[str, Any]] = {"type": "object", "properties": {"folder": {"type": "string"}}}

    async def call(self, arguments: dict[str, Any]) -> str:
        note(arguments["folder"], "tool")
        return "noted"


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
    note(extra_info["notes"], "reward")
    return 0.0
