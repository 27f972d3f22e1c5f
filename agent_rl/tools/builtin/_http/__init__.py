"""Internals of the `http` toolset: building a request from arguments, and the connection that sends it."""
