"""Tools as a run uses them: an entry of a tool file, and the calls of one trajectory."""

import asyncio

import yaml

from agent_rl.tools import ToolSession, load_tools
from agent_rl.trajectory import ToolCall


def load(folder, name, config=None, **entry):
    """The specs of a tool file with this one entry."""
    path = folder / "tools.yaml"
    path.write_text(yaml.safe_dump({"tools": [{"name": name, "config": config or {}, **entry}]}))
    return load_tools(path)


def run(specs, *turns, timeout_s=30, **options):
    """The results of one trajectory; a turn is a list of (tool, arguments)."""

    async def episode():
        async with ToolSession(specs, default_timeout_s=timeout_s, **options) as session:
            return [result for calls in turns for result in await session.run([ToolCall(*call) for call in calls])]

    return asyncio.run(episode())
