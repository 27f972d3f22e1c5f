"""The base of every recipe (`agent.yaml`) and hydra groups to choose from: `hydra.searchpath` names this package.

It must not hold what only one recipe needs.
"""
