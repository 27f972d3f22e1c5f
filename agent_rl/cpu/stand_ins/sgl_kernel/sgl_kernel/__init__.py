"""Stand-in for SGLang's CUDA kernels: importable, never called on a CPU."""

from agent_rl.cpu.placeholder import Placeholder

__version__ = "0.0.0"


def __getattr__(name: str) -> Placeholder:
    if name.startswith("__"):
        raise AttributeError(name)
    return Placeholder(f"sgl_kernel.{name}")
