"""The base of every recipe (`agent.yaml`) and optional hydra groups; recipes list this package in `hydra.searchpath`.

This package must not contain settings that only one recipe needs.
"""
