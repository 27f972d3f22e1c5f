"""The CPU profile follows the size of the model and the processor."""

import os

import pytest

from agent_rl.cpu import switch
from agent_rl.cpu.profile import LARGE, TRAINING_THREADS, CPUProfile, profile_of


@pytest.fixture
def large(tmp_path):
    """A folder with as many bytes of weights as make a model large, most of them a hole."""
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.truncate(LARGE)
    return tmp_path


@pytest.mark.parametrize(
    ("alone", "flags", "threads", "dtype"),
    [
        (True, {"avx512_bf16"}, 4, "bfloat16"),
        (True, {"amx_bf16"}, 4, "bfloat16"),
        (True, {"avx2"}, 4, "float32"),
        (False, {"avx2"}, 2, "float32"),
    ],
)
def test_a_large_model_gets_cores_and_the_fastest_numbers(large, alone, flags, threads, dtype):
    profile = profile_of(large, alone, cores=4, flags=frozenset(flags))
    assert (profile.threads, profile.dtype) == (threads, dtype)
    assert bool(profile.overrides()) == (dtype == "bfloat16")


def test_a_small_model_stays_as_it_is(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"0" * 1000)
    for model in (tmp_path, tmp_path / "absent", "outputs/worlds/x/model"):
        assert profile_of(model, cores=1, flags=frozenset({"amx_bf16"})) == CPUProfile()
    assert profile_of("Qwen/Qwen2.5-0.5B-Instruct", flags=frozenset({"amx_bf16"})).bfloat16


@pytest.mark.parametrize(
    ("cores", "processes", "alone", "threads"), [(8, 1, True, 2), (4, 4, True, 1), (2, 4, True, 1), (8, 1, False, 1)]
)
def test_the_update_of_a_small_model_gets_a_second_core_that_nobody_uses(tmp_path, cores, processes, alone, threads):
    profile = profile_of(tmp_path, alone, cores, processes=processes)
    assert (profile.threads, profile.training_threads) == (1, threads)


def test_threads_are_in_the_environment_only_meanwhile(monkeypatch):
    monkeypatch.setattr(switch, "_set_here", set())
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with CPUProfile(threads=3, training_threads=4).in_environment():
        assert (os.environ["OMP_NUM_THREADS"], os.environ[TRAINING_THREADS]) == ("3", "4")
    assert not {"OMP_NUM_THREADS", TRAINING_THREADS} & os.environ.keys()
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with CPUProfile(threads=3).in_environment():
        assert os.environ["OMP_NUM_THREADS"] == "2"
        assert TRAINING_THREADS not in os.environ
    monkeypatch.setattr(switch, "_set_here", {"OMP_NUM_THREADS"})  # by `activate`, not by the user
    with CPUProfile(threads=3).in_environment():
        assert os.environ["OMP_NUM_THREADS"] == "3"
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_a_process_gets_the_profiles_threads_unless_the_user_has_set_them(monkeypatch):
    import torch

    before = torch.get_num_threads()
    try:
        monkeypatch.setattr(switch, "_set_here", set())
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        torch.set_num_threads(1)
        CPUProfile(threads=2).use_threads()
        assert torch.get_num_threads() == 1
        monkeypatch.setattr(switch, "_set_here", {"OMP_NUM_THREADS"})
        CPUProfile(threads=2).use_threads()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
