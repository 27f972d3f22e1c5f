"""Stand-in: the kernel types, for `isinstance`."""


class KernelInterface:
    """Never made on a CPU."""


class JITFunction(KernelInterface):
    """Never made on a CPU: the stand-in's `jit` gives placeholders."""
