"""Runs one episode (`episode`), and defines the parts of an agent (`agent`, `loop`) and the interfaces that a run uses.

Nothing here may depend on a text format, an engine or verl.
"""
