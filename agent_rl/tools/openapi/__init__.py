"""Tool files made from OpenAPI documents: one endpoint of the toolset `http` for each operation.

It must not know how requests are sent.
"""

from agent_rl.tools.openapi.conversion import Conversion, from_openapi, read_openapi, to_yaml

__all__ = ["Conversion", "from_openapi", "read_openapi", "to_yaml"]
