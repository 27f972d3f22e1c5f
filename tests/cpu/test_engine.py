"""Sequences of like length share a micro-batch, and nobody notices; in a process of its own, as in test_patches."""

import pytest

from tests.support.forks import python

ENGINE = """
import verl, torch
from verl.utils import tensordict_utils as tu
from agent_rl.cpu.engine import CPUEngineWithLMHead

LENGTHS = [7, 2, 9, 1, 5, 3]
seen = []

def as_verl(self, data, loss_function, forward_only=False):
    seen.append(([len(row) for row in data["input_ids"].unbind()], data["row"].tolist()))
    return {"model_output": {"log_probs": data["input_ids"].clone()} if forward_only else {}, "loss": [0.5]}

CPUEngineWithLMHead.__mro__[2].forward_backward_batch = as_verl
engine = object.__new__(CPUEngineWithLMHead)

def run(forward_only, **settings):
    rows = [torch.full((length,), length) for length in LENGTHS]
    fields = {"input_ids": torch.nested.as_nested_tensor(rows, layout=torch.jagged), "row": torch.arange(6)}
    return engine.forward_backward_batch(tu.get_tensordict(fields, settings), None, forward_only)
"""


def test_micro_batches_hold_like_lengths_and_the_result_has_the_given_order() -> None:
    code = """
result = run(True, use_dynamic_bsz=False)
assert seen == [(sorted(LENGTHS), [3, 1, 5, 4, 0, 2])], seen
rows = result["model_output"]["log_probs"].unbind()
assert [len(row) for row in rows] == [int(row[0]) for row in rows] == LENGTHS, rows
assert run(False, use_dynamic_bsz=False) == {"model_output": {}, "loss": [0.5]}
print("same")
"""
    assert python(ENGINE + code) == "same"


@pytest.mark.parametrize(("images", "kept"), [("[{}] * 6", False), ("[{}] * 5 + [{'pixel_values': 1}]", True)])
def test_only_images_that_are_there_are_copied(images: str, kept: bool) -> None:
    code = f"""
from agent_rl.cpu.speed import IMAGES
seen = []
def as_verl(self, data, loss_function, forward_only=False):
    seen.append(IMAGES in data)
    return {{"model_output": {{}}, "loss": [0.5]}}
CPUEngineWithLMHead.__mro__[2].forward_backward_batch = as_verl
rows = torch.nested.as_nested_tensor([torch.full((n,), n) for n in LENGTHS], layout=torch.jagged)
data = tu.get_tensordict({{"input_ids": rows, IMAGES: {images}}}, dict(use_dynamic_bsz=False))
engine.forward_backward_batch(data, None)
print(seen)
"""
    assert python(ENGINE + code) == f"[{kept}]"


def test_an_engine_takes_the_threads_of_a_process_that_trains() -> None:
    code = """
import os
CPUEngineWithLMHead.__mro__[2].initialize = lambda self: print(torch.get_num_threads())
engine.initialize()
os.environ["AGENT_RL_TRAINING_THREADS"] = "2"
torch.set_num_threads(1)
engine.initialize()
"""
    assert python(ENGINE + code) == "2"


def test_what_verl_arranges_itself_is_left_alone() -> None:
    code = """
run(True, use_dynamic_bsz=True)
run(True, use_dynamic_bsz=False, force_group_size=2)
print(seen == [(LENGTHS, list(range(6)))] * 2)
"""
    assert python(ENGINE + code) == "True"
