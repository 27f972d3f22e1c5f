"""Every outgoing call: HTTP with retries and limits, and one client for OpenAI-compatible endpoints.

It must not know the content of a request, or the purpose of its reply.
"""

from agent_rl.remote.chat_client import ChatClient, Completion, EndpointConfig
from agent_rl.remote.http import Remote, RemoteError, RemoteLimits, Response

__all__ = ["ChatClient", "Completion", "EndpointConfig", "Remote", "RemoteError", "RemoteLimits", "Response"]
