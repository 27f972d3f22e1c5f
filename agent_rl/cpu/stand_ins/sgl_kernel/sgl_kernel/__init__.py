"""Stand-in for SGLang's CUDA kernels; it is imported but never called on a CPU."""

from agent_rl.cpu.placeholder import add_module, placeholders_of

__version__ = "0.0.0"
__getattr__ = placeholders_of(__name__)

add_module("sgl_kernel.kvcacheio")
