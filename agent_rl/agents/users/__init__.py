"""Simulated users: the interface, and a user played by a language model."""
