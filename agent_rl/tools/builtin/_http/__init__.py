"""Internals of the toolset `http`: building a request from arguments, and the connection that sends it."""
