"""Stand-in: the runtime, which has no active driver."""

from agent_rl.cpu.placeholder import Placeholder


class _Driver:
    @property
    def active(self) -> object:
        """Torch's inductor and flop counter ask for it and take this error for "no GPU"."""
        raise RuntimeError("0 active drivers: this process runs on a CPU with a stand-in for triton")


driver = _Driver()


def __getattr__(name: str) -> Placeholder:
    if name.startswith("__"):
        raise AttributeError(name)
    return Placeholder(f"triton.runtime.{name}")
