"""Every outgoing call over HTTP, with retry and limits; knows nothing of what is asked."""

from agent_rl.remote.http import Remote, RemoteError, RemoteLimits, Response

__all__ = ["Remote", "RemoteError", "RemoteLimits", "Response"]
