"""Stand-in for SGLang's cache transfer kernels."""

from agent_rl.cpu.placeholder import Placeholder


def __getattr__(name: str) -> Placeholder:
    if name.startswith("__"):
        raise AttributeError(name)
    return Placeholder(f"sgl_kernel.kvcacheio.{name}")
