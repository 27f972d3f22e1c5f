"""Trains a recipe: composes its configuration and command line, and runs the trainer's process on one or more nodes.

This package must not import verl, because the trainer is a separate process.

A recipe is a folder with `config.yaml`, which starts from verl's configuration, and optionally a hydra group `size`,
whose `cpu.yaml` contains smaller values for a CPU. With `VERL_PLATFORM=cpu`, the size `cpu` is chosen and the CPU
profile overrides the recipe; the command line overrides everything.
"""
