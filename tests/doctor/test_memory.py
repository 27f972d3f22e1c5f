import json
from pathlib import Path

import pytest

from agent_rl.doctor import memory
from agent_rl.doctor.finding import Status

from .conftest import MakeCase, only, statuses, with_gpus

GIB = 1 << 30
FSDP = "actor_rollout_ref.actor.fsdp_config"


@pytest.fixture
def three_b(tmp_path: Path) -> str:
    """A folder with the config.json of a model of 3.09 B parameters and no weights."""
    folder = tmp_path / "three_b"
    folder.mkdir()
    shape = {"hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2}
    shape |= {"intermediate_size": 11008, "vocab_size": 151936, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", **shape}))
    return str(folder)


def test_the_3b_recipe_fits_eight_gpus_and_not_one(make_case: MakeCase, three_b: str, tmp_path: Path) -> None:
    model = {"actor_rollout_ref.model.path": three_b}
    eight = make_case(model, on_cpu=False, environ=with_gpus(tmp_path, 8))
    assert set(statuses(memory.gpu(eight)).values()) == {Status.OK}
    alone = {**model, "trainer.n_gpus_per_node": 1}
    one = {finding.subject: finding for finding in memory.gpu(make_case(alone, on_cpu=False, environ=eight.environ))}
    assert one["memory, generating"].status is Status.PROBLEM
    assert "optimizer_offload=True" in one["memory, generating"].remedy


def test_the_parts_of_the_estimate(make_case: MakeCase, three_b: str) -> None:
    keys = {"actor_rollout_ref.model.path": three_b, "trainer.n_gpus_per_node": 1}
    need = memory.gpu_need(make_case(keys, on_cpu=False))
    parameters = 3_085_846_528
    assert need.training == 16 * parameters  # the reference policy is offloaded by the recipe
    assert need.logits == 16384 * 151936 * 8
    assert need.engine_weights == 2 * parameters
    assert need.kv_per_token == 2 * 36 * 2 * 128 * 2
    offloaded = {**keys, f"{FSDP}.param_offload": True, f"{FSDP}.optimizer_offload": True}
    assert memory.gpu_need(make_case(offloaded, on_cpu=False)).resting == 4 * parameters
    gae = {**keys, "algorithm.adv_estimator": "gae"}
    assert memory.gpu_need(make_case(gae, on_cpu=False)).training == 32 * parameters
    lora = {**keys, "actor_rollout_ref.model.lora_rank": 32}
    assert memory.gpu_need(make_case(lora, on_cpu=False)).training == 4 * parameters


def test_an_engine_without_room_for_a_cache(make_case: MakeCase, three_b: str, tmp_path: Path) -> None:
    keys = {"actor_rollout_ref.model.path": three_b, "actor_rollout_ref.rollout.gpu_memory_utilization": 0.05}
    found = {f.subject: f for f in memory.gpu(make_case(keys, on_cpu=False, environ=with_gpus(tmp_path, 8)))}
    assert found["memory, engine"].status is Status.PROBLEM
    assert "gpu_memory_utilization" in found["memory, engine"].remedy


def test_what_is_not_known_is_said(make_case: MakeCase, tmp_path: Path) -> None:
    case = make_case({"actor_rollout_ref.model.path": "some/model"}, on_cpu=False, environ=with_gpus(tmp_path, 8))
    assert only(memory.gpu(case)).status is Status.SKIPPED
    assert not list(memory.gpu(make_case()))


def test_host_memory(make_case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_available", lambda: 100 * GIB)
    assert only(memory.host(make_case())).status is Status.OK
    monkeypatch.setattr(memory, "_available", lambda: 4 * GIB)
    assert only(memory.host(make_case())).status is Status.PROBLEM
    assert only(memory.host(make_case(on_cpu=False))).status is Status.SKIPPED  # no GPU here: another machine's matter


def test_offloading_takes_the_hosts_memory(
    make_case: MakeCase, three_b: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_available", lambda: 100 * GIB)
    environ, keys = with_gpus(tmp_path, 8), {"actor_rollout_ref.model.path": three_b}
    assert only(memory.host(make_case(keys, on_cpu=False, environ=environ))).status is Status.OK
    keys |= {f"{FSDP}.param_offload": True, f"{FSDP}.optimizer_offload": True}
    assert only(memory.host(make_case(keys, on_cpu=False, environ=environ))).status is Status.PROBLEM


def test_shared_memory_that_a_container_leaves(make_case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    def free(count: int) -> None:
        monkeypatch.setattr(memory.shutil, "disk_usage", lambda path: type("Usage", (), {"free": count})())

    free(64 << 20)
    finding = only(memory.shared_memory(make_case()))
    assert finding.status is Status.PROBLEM
    assert "--shm-size" in finding.remedy
    free(3 * GIB)
    assert only(memory.shared_memory(make_case())).status is Status.OK
    large = make_case({"ray_kwargs.ray_init.object_store_memory": 8 * GIB})
    assert only(memory.shared_memory(large)).status is Status.WARNING


def test_checkpoints_that_do_not_fit(make_case: MakeCase, three_b: str) -> None:
    model = {"actor_rollout_ref.model.path": three_b}
    assert "none are written" in only(memory.disk(make_case(model))).text
    every = {**model, "trainer.save_freq": 1, "trainer.total_training_steps": 1_000_000}
    finding = only(memory.disk(make_case(every)))
    assert finding.status is Status.PROBLEM
    assert "1000000 checkpoint(s) of 34.5 GiB" in finding.text
    assert "max_actor_ckpt_to_keep" in finding.remedy
    kept = only(memory.disk(make_case({**every, "trainer.max_actor_ckpt_to_keep": 1})))
    assert "1 checkpoint(s)" in kept.text
