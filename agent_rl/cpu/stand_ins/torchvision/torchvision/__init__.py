"""Stand-in for torchvision, whose published builds do not load against a CPU torch: importable, never called."""

from agent_rl.cpu.placeholder import Placeholder

__version__ = "0.0.0"


def __getattr__(name: str) -> Placeholder:
    if name.startswith("__"):
        raise AttributeError(name)
    return Placeholder(f"torchvision.{name}")
