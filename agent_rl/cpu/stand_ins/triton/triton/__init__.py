"""Stand-in for triton: kernels can be declared, but not compiled or launched."""

from agent_rl.cpu.placeholder import add_module, placeholder_jit, placeholders_of

__version__ = "0.0.0"
__getattr__ = placeholders_of(__name__)

jit = placeholder_jit


def autotune(*args: object, **kwargs: object) -> object:
    """Return a decorator that returns the kernel's placeholder unchanged."""
    return lambda kernel: kernel


heuristics = autotune


class Config:
    """A tuning configuration that only stores its arguments."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.args, self.kwargs = args, kwargs


def cdiv(x: int, y: int) -> int:
    """Divide and round up, like triton's function."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """Return the smallest power of two that is not below n, like triton's function."""
    return 1 << max(n - 1, 0).bit_length()


class Constant:
    """A compile-time constant that only stores its value."""

    def __init__(self, value: object = None) -> None:
        self.value = value


class Driver:
    """A runtime driver that is never active."""

    @property
    def active(self) -> object:
        """Raise the error that torch's inductor and flop counter interpret as "no GPU"."""
        raise RuntimeError("0 active drivers: this process runs on a CPU with a stand-in for triton")


def never_made(*names: str, base: type = object) -> dict[str, type]:
    """Return classes that are never instantiated, for use in annotations, `isinstance` and `except`."""
    return {name: type(name, (base,), {"__doc__": "Never instantiated on a CPU."}) for name in names}


add_module("triton.backends", {})
add_module("triton.backends.compiler", never_made("GPUTarget", "AttrsDescriptor"))
add_module("triton.compiler", never_made("CompiledKernel"))
# Torch calls `triton_key` to compute the key of its own cache.
add_module("triton.compiler.compiler", {**never_made("ASTSource"), "triton_key": lambda: "stand-in"})
add_module("triton.language", {**never_made("dtype"), "constexpr": Constant}, more=True)
add_module("triton.language.extra", {})
add_module("triton.language.extra.libdevice")
add_module("triton.runtime", {"driver": Driver()}, more=True)
errors = never_made("OutOfResources", "PTXASError", base=Exception)
add_module("triton.runtime.autotuner", {**errors, **never_made("Autotuner")})
add_module("triton.runtime.jit", never_made("KernelInterface", "JITFunction"))
