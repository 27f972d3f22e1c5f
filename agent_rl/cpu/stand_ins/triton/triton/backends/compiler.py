"""Stand-in: the description of a compilation target."""


class GPUTarget:
    """Never made on a CPU."""


class AttrsDescriptor:
    """Never made on a CPU."""
