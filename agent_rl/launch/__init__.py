"""Starting a recipe: its composed configuration, its command line, and the trainer's process.

A recipe is a folder with `config.yaml`, which starts from verl's own configuration, and optionally a hydra group
`size`, whose `cpu.yaml` holds what is smaller on a CPU. With `VERL_PLATFORM=cpu` that size is chosen and the CPU
profile is laid over the recipe; what the user writes on the command line wins over everything.
"""
