"""Stand-in for torchvision, whose published builds do not load with a CPU torch; it is imported but never called."""

from agent_rl.cpu.placeholder import add_module, placeholders_of

__version__ = "0.0.0"
__getattr__ = placeholders_of(__name__)

for name in ("io", "transforms", "transforms.functional", "transforms.v2", "transforms.v2.functional"):
    add_module(f"{__name__}.{name}")
