"""Stand-in for triton: kernels can be declared, none can be compiled or launched."""

from agent_rl.cpu.placeholder import Placeholder, placeholder_jit

__version__ = "0.0.0"

jit = placeholder_jit


def autotune(*args: object, **kwargs: object) -> object:
    """Decorator that keeps the kernel's placeholder."""
    return lambda kernel: kernel


heuristics = autotune


class Config:
    """A tuning configuration, kept as declared."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.args, self.kwargs = args, kwargs


def cdiv(x: int, y: int) -> int:
    """Ceiling division, as triton's."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below n, as triton's."""
    return 1 << max(n - 1, 0).bit_length()


def __getattr__(name: str) -> Placeholder:
    if name.startswith("__"):
        raise AttributeError(name)
    return Placeholder(f"triton.{name}")
