"""Reward components that need no judge and no model; every class with a `kind` in this folder is registered.

They see one trajectory or one group, and must not know their weight or each other.
"""
