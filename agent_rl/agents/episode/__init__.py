"""Runs one episode (`episode`), and defines the parts of an agent (`agent`, `loop`) and the interfaces that a run uses.

Modules in this package must not depend on a text format, an engine or verl.
"""
