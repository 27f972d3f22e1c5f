"""Stand-in: the kernel language."""

from agent_rl.cpu.placeholder import Placeholder


class dtype:
    """Type in annotations."""


class constexpr:
    """Compile-time constant, kept as declared."""

    def __init__(self, value: object = None) -> None:
        self.value = value


def __getattr__(name: str) -> Placeholder:
    if name.startswith("__"):
        raise AttributeError(name)
    return Placeholder(f"triton.language.{name}")
