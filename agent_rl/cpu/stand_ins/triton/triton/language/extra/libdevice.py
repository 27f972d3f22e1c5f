"""Stand-in: device functions."""

from agent_rl.cpu.placeholder import Placeholder


def __getattr__(name: str) -> Placeholder:
    if name.startswith("__"):
        raise AttributeError(name)
    return Placeholder(f"triton.language.extra.libdevice.{name}")
