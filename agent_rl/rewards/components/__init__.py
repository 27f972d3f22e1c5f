"""Reward components that need neither a judge nor a model; every class in this folder with a `kind` is registered.

A component sees one trajectory or one group; it must not depend on its weight or on other components.
"""
