"""The base of every recipe (`agent.yaml`) and hydra groups to choose from: `hydra.searchpath` lists this package.

This package must not contain settings that only one recipe needs.
"""
