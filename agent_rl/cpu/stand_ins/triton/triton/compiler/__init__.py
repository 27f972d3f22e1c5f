"""Stand-in: the compiler's types, for `isinstance` and annotations."""


class CompiledKernel:
    """Never made on a CPU."""
