"""What verl's training engines do differently on a CPU; in a process of its own, as in test_patches."""

from tests.support.forks import python


def test_an_engine_takes_the_threads_of_a_process_that_trains() -> None:
    code = """
import os, verl, torch
from agent_rl.cpu.engine import CPUEngineWithLMHead
engine = object.__new__(CPUEngineWithLMHead)
CPUEngineWithLMHead.__mro__[2].initialize = lambda self: print(torch.get_num_threads())
engine.initialize()
os.environ["AGENT_RL_TRAINING_THREADS"] = "2"
torch.set_num_threads(1)
engine.initialize()
"""
    assert python(code) == "2"
