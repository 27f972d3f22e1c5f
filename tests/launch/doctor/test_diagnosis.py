import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_rl.launch import training
from agent_rl.launch.doctor import diagnosis
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.diagnosis import diagnose, run_check
from agent_rl.preflight.check import Check, Finding, Status

from .conftest import RECIPE, ROOT, only


def broken(case: Case) -> Iterator[Finding]:
    """Finds one thing, then fails."""
    yield Finding("first", Status.OK, "found")
    raise ZeroDivisionError("oops")


def hangs(case: Case) -> Iterator[Finding]:
    """Takes its time."""
    time.sleep(3)
    yield Finding("late", Status.OK, "found")


def test_a_check_that_fails_hides_nothing() -> None:
    first, second = run_check(Check("g", "broken", broken), Case())
    assert (first.subject, first.group) == ("first", "g")
    assert (second.subject, second.status) == ("broken", Status.WARNING)
    assert "ZeroDivisionError: oops" in second.text
    finding = only(run_check(Check("g", "hangs", hangs), Case(), limit_s=0.2))
    assert finding.status is Status.WARNING
    assert "not finished after 0.2 seconds" in finding.text


def test_wrong_overrides_are_all_reported_and_the_rest_is_checked(parquet: Path, tiny_model: Path) -> None:
    good = [f"data.{kind}_files={parquet}" for kind in ("train", "val")]
    good.append(f"actor_rollout_ref.model.path={tiny_model}")
    wrong = ["trainer.nnode=2", "data.train_batch_size=13", "agent_rl.reward.x=1", "reward_model.micro_batch_size=3"]
    found = diagnose(str(RECIPE), [*good, *wrong])
    recipe = [finding for finding in found if finding.subject == "recipe"]
    assert [finding.status for finding in recipe] == [Status.PROBLEM, Status.PROBLEM, Status.PROBLEM, Status.OK]
    assert "reward_model.micro_batch_size: changed" in recipe[0].text
    assert recipe[0].remedy == "Write reward.reward_model.rollout.max_num_seqs=3"
    assert "Did you mean 'trainer.nnodes'" in recipe[1].remedy
    assert "agent_rl.reward.x: unknown key" in recipe[2].text
    assert "ignore reward_model.micro_batch_size=3 trainer.nnode=2 agent_rl.reward.x=1" in recipe[3].text
    groups = [finding.group for finding in found]
    assert groups == sorted(groups, key=list(dict.fromkeys(groups)).index)  # those of the child stand with the others
    assert not any("real_train_batch_size" in finding.text for finding in found)
    assert "registration" in {finding.subject for finding in found}  # of the child with verl


def test_the_checked_configuration_is_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, the doctor would report that the folder of a run contains a run with another configuration."""
    cases: list[Case] = []
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setattr(diagnosis, "run_checks", lambda case, *needs, tell: cases.append(case) or [])
    monkeypatch.setattr(diagnosis, "_with_verl", lambda *_: [])
    diagnose(str(RECIPE), ["trainer.nnodes=2"])
    assert cases[0].config.actor_rollout_ref.rollout.agent.num_workers == 16
    assert cases[0].config == training.composed(str(RECIPE), ["trainer.nnodes=2"], None)[0]


def test_a_recipe_that_does_not_compose_hides_only_what_needs_it(tmp_path: Path) -> None:
    found = diagnose(str(tmp_path), ["x=1"])
    assert {finding.group for finding in found} == {"installation", "machine", "Ray", "configuration"}
    (problem,) = {finding.text for finding in found if finding.status is Status.PROBLEM}
    assert "there is no config.yaml" in problem


def test_a_verl_that_cannot_be_imported_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configs: dict[bool, object]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'verl':\n"
        "            raise ImportError('libcudart.so.13: cannot open shared object file')\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    finding = only(diagnosis._with_verl(pickle.dumps(Case(config=configs[True], folder=ROOT)), {}))
    assert (finding.subject, finding.status) == ("verl", Status.PROBLEM)
    assert "libcudart.so.13" in finding.text
