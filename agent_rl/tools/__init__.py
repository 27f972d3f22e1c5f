"""Tools: the contract (`base`), YAML loading (`loading`), dispatch for one trajectory (`runtime`) and built-in tools.

This package does not import torch, verl, ray or transformers, so a tool can be written and tested anywhere.
"""

from agent_rl.tools.base import Tool, ToolOutput
from agent_rl.tools.loading import load_tools
from agent_rl.tools.runtime import ToolSession
from agent_rl.tools.spec import Toolset, ToolSpec

__all__ = ["Tool", "ToolOutput", "ToolSession", "ToolSpec", "Toolset", "load_tools"]
