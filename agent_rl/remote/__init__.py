"""Outgoing HTTP calls, with retries and limits, and a client for OpenAI-compatible endpoints.

Code in this package must not depend on the content of a request, or on how its reply is used.
"""

from agent_rl.remote.chat_client import ChatClient, Completion, EndpointConfig
from agent_rl.remote.http import Remote, RemoteLimits
from agent_rl.remote.responses import RemoteError, Response

__all__ = ["ChatClient", "Completion", "EndpointConfig", "Remote", "RemoteError", "RemoteLimits", "Response"]
