"""The base of every recipe (`agent.yaml`) and hydra groups to choose from: `hydra.searchpath` lists this package.

It must not contain what only one recipe needs.
"""
