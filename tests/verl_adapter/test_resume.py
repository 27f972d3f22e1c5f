from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.verl_adapter import resume


def config(folder: Path, *, ranks: int = 1, **trainer: Any) -> Any:
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
            "critic": {"checkpoint": checkpoint},
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


def test_a_first_run_and_a_whole_checkpoint_pass(tmp_path: Path) -> None:
    resume.check(config(tmp_path), use_critic=False)
    save(tmp_path, 2, roles=("actor", "critic"))
    resume.check(config(tmp_path), use_critic=True)
    resume.check(config(tmp_path, resume_mode="disable", n_gpus_per_node=4), use_critic=False)


@pytest.mark.parametrize(
    "missing", ["actor/model_world_size_1_rank_0.pt", "actor/extra_state_world_size_1_rank_0.pt", "data.pt"]
)
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    save(tmp_path, 2)
    (tmp_path / "global_step_2" / missing).unlink()
    with pytest.raises(ConfigError, match=rf"incomplete: it has no {missing}.*trainer\.resume_mode=disable"):
        resume.check(config(tmp_path), use_critic=False)


def test_a_critic_that_was_not_saved_is_missed(tmp_path: Path) -> None:
    save(tmp_path, 2)
    with pytest.raises(ConfigError, match="no critic/model"):
        resume.check(config(tmp_path), use_critic=True)


def test_another_number_of_ranks_is_told_apart(tmp_path: Path) -> None:
    save(tmp_path, 2, ranks=2)
    with pytest.raises(ConfigError, match=r"model_world_size_2_rank_0\.pt: another number of ranks wrote it"):
        resume.check(config(tmp_path), use_critic=False)
    resume.check(config(tmp_path, ranks=2), use_critic=False)


def test_a_checkpoint_that_is_gone_is_no_fresh_start(tmp_path: Path) -> None:
    (tmp_path / resume.TRACKER).write_text("7")
    with pytest.raises(ConfigError, match=r"there is no checkpoint .*global_step_7"):
        resume.check(config(tmp_path), use_critic=False)
    gone = config(tmp_path, resume_mode="resume_path", resume_from_path=f"{tmp_path}/global_step_3")
    with pytest.raises(ConfigError, match=r"trainer\.resume_from_path: there is no checkpoint .*global_step_3"):
        resume.check(gone, use_critic=False)
