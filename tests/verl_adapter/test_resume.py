from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from agent_rl.preflight.case import RunCase
from agent_rl.verl_adapter import resume


def config(folder: Path, *, ranks: int = 1, critic: bool = False, **trainer: Any) -> Any:
    checkpoint = {"load_contents": ["model", "optimizer", "extra"]}
    return OmegaConf.create(
        {
            "trainer": {
                "resume_mode": "auto",
                "resume_from_path": None,
                "default_local_dir": str(folder),
                "nnodes": 1,
                "n_gpus_per_node": ranks,
                **trainer,
            },
            "actor_rollout_ref": {"actor": {"strategy": "fsdp2", "checkpoint": checkpoint}},
            "critic": {"enable": critic, "checkpoint": checkpoint},
            "algorithm": {"adv_estimator": "grpo"},
        }
    )


def save(folder: Path, step: int, ranks: int = 1, roles: tuple[str, ...] = ("actor",)) -> None:
    for role in roles:
        (folder / f"global_step_{step}/{role}").mkdir(parents=True)
        for part in ("model", "optim", "extra_state"):
            for rank in range(ranks):
                (folder / f"global_step_{step}/{role}/{part}_world_size_{ranks}_rank_{rank}.pt").touch()
    (folder / f"global_step_{step}/data.pt").touch()
    (folder / resume.TRACKER).write_text(str(step))


def refused(config: Any) -> str:
    """The error's key, problem and remedy in one line; empty: there is none."""
    return " ".join(
        f"{finding.text}. {finding.remedy}" for finding in resume.complete_checkpoint(RunCase(config=config))
    )


def test_a_first_run_and_a_whole_checkpoint_pass(tmp_path: Path) -> None:
    assert not refused(config(tmp_path))
    save(tmp_path, 2, roles=("actor", "critic"))
    assert not refused(config(tmp_path, critic=True))
    assert not refused(config(tmp_path, resume_mode="disable", n_gpus_per_node=4))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    save(tmp_path, 2)
    assert "incomplete: it has no critic/model" in refused(config(tmp_path, critic=True))
    for file in ("data.pt", "actor/extra_state_world_size_1_rank_0.pt", "actor/model_world_size_1_rank_0.pt"):
        (tmp_path / "global_step_2" / file).unlink()
        message = refused(config(tmp_path))
        assert message.startswith(f"{tmp_path}/{resume.TRACKER}: the checkpoint {tmp_path}/global_step_2 is incomplete")
        assert f"it has no {file}" in message
        assert "trainer.resume_mode=disable" in message


def test_another_number_of_ranks_is_told_apart(tmp_path: Path) -> None:
    save(tmp_path, 2, ranks=2)
    assert "model_world_size_2_rank_0.pt: another number of ranks wrote it" in refused(config(tmp_path))
    assert not refused(config(tmp_path, ranks=2))


def test_a_checkpoint_that_is_gone_is_no_fresh_start(tmp_path: Path) -> None:
    (tmp_path / resume.TRACKER).write_text("7")
    assert "there is no checkpoint" in refused(config(tmp_path))
    gone = config(tmp_path, resume_mode="resume_path", resume_from_path=f"{tmp_path}/global_step_3")
    assert refused(gone).startswith(f"trainer.resume_from_path: there is no checkpoint {tmp_path}/global_step_3")
