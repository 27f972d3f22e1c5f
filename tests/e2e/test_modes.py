"""verl's asynchronous modes on a CPU: generations that go on with new weights, and an engine apart from the trainer.

The run is asked to end early: what it then saves, and that it goes on, is tested in test_stops.py.
"""

import json
from pathlib import Path

import pytest

from agent_rl.trajectory import trace
from tests.docs.pages import block
from tests.e2e.training import KeptRequest, diffs, train

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("run_processes")]

SPAN = "training/off_policy/trajectory_spans/max"


@pytest.mark.parametrize("mode", [pytest.param("colocate_async", marks=pytest.mark.recipes), "separate_async"])
def test_interrupted_generations_stay_exact(
    mode: str, tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROBE_DIR", str(tmp_path))
    request = KeptRequest()
    request.begin(tmp_path)
    trainer = tmp_path / "my_trainer.py"
    trainer.write_text(block("docs/guides/trainer.md", "python", trainer.name))
    logged = train(
        tmp_path,
        tiny_llama,
        f"mode={mode}",
        f"agent_rl.trainer_class={trainer}:Brief",
        agent="weights_probe",
        script=Path(__file__).with_name("probe_train.py"),
        data__max_response_length=256,
        # Steps so small that old and new weights agree within the limit: what is left is a token in the wrong place.
        actor_rollout_ref__actor__optim__lr=1e-5,
        trainer__total_training_steps=50,
        trainer__save_freq=1,
        on_step=lambda step: request.ask() if step == 4 else None,
        stopping=request,
    )
    assert list(logged) == list(range(1, len(logged) + 1))
    assert len(logged) < 10
    last = f"{tmp_path}/checkpoints/global_step_{len(logged)}"
    assert request.answered is not None
    assert (request.answered.step, request.answered.checkpoint) == (len(logged), last)
    assert max(metrics[SPAN] for metrics in logged.values()) >= 2  # begun with one version, ended with another
    assert max(diffs(logged)) < 1e-3
    assert {metrics["agent/unscored"] for metrics in logged.values()} == {0}
    assert {metrics["agent/long"] for metrics in logged.values()} == {0}  # of the user's trainer
    check_weights(tmp_path)
    batches = list(trace.read_batches(tmp_path / "trace.jsonl"))
    assert {batch.step for batch in batches} >= set(logged)
    names = [name for batch in batches for name in batch.names]
    assert len(set(names)) == len(names)
    reader = trace.TokenReader(tmp_path / "trace.jsonl")
    assert all(reader.read(name.rpartition("_")[0]) for name in names)


def check_weights(folder: Path) -> None:
    """The engine got each version of the weights whole: what it had in a step is a checkpoint of about that step."""
    import torch

    states = {}
    for step in (1, 2, 3, 4):
        path = folder / f"checkpoints/global_step_{step}/actor/model_world_size_1_rank_0.pt"
        states[step] = torch.load(path, weights_only=False, map_location="cpu")
    for step in (2, 3):
        for name, values in json.loads((folder / f"engine_{step}.json").read_text()).items():
            versions = [states[version][name] for version in range(step - 1, 5)]
            full = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in versions]
            assert any(torch.equal(torch.tensor(values), each[: len(values)]) for each in full), (step, name)
