"""The plan for a GPU: pieces end, resume and say why they did not run; its engine-free part runs on this CPU, small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_rl.launch.composition import compose
from tests.gpu import plan
from tests.gpu.plan import PIECES, Piece, run
from tests.gpu.training_run import check, figures

ROOT = Path(__file__).parents[2]


def says(name: str, code: str, **more: object) -> Piece:
    return Piece(name, f"piece {name}", ("-c", code), **more)  # type: ignore[arg-type]


def test_pieces_end_resume_and_say_why_they_did_not_run(tmp_path: Path) -> None:
    count = f"open('{tmp_path}/count', 'a').write('x'); print('noise'); print('{{\"tokens/s\": 12.5, \"list\": [1]}}')"
    pieces = [
        says("good", count),
        says("slow", "import time; print('begun', flush=True); time.sleep(60)", limit_s=0.5),
        says("broken", "raise ValueError('no kernel')"),
        says("mute", "print('no figures')"),
        says("absent", "", needs=("json", "no_such_module")),
        says("elsewhere", "", where="recipes/no_such_recipe"),
        says("many", "", gpus=1000),
    ]
    told: list[str] = []
    answers = run(pieces, tmp_path / "out", tell=told.append)
    assert {name: answer["status"] for name, answer in answers.items()} == {
        "good": "ok", "slow": "failed", "broken": "failed", "mute": "failed",
        "absent": "not run", "elsewhere": "not run", "many": "not run",
    }  # fmt: skip
    assert answers["good"]["figures"] == {"tokens/s": 12.5, "list": [1]}
    assert answers["slow"]["why"] == "ended after 0.5 seconds"
    assert answers["broken"]["why"] == "ValueError: no kernel"
    assert answers["absent"]["why"] == "no_such_module cannot be imported"
    assert answers["elsewhere"]["why"] == "there is no recipes/no_such_recipe"
    assert answers["many"]["why"].startswith("1000 GPU(s) needed")
    page = (tmp_path / "out/report.md").read_text()
    assert "| good: piece good | ok | " in page
    assert "| tokens/s 12.5 |" in page
    assert "begun" in (tmp_path / "out/slow.log").read_text()
    run(pieces[:1], tmp_path / "out", tell=told.append)
    assert told[-1] == "good: has run"
    assert run(pieces[:1], tmp_path / "out", again=["good"], tell=told.append).keys() == answers.keys()
    assert (tmp_path / "count").read_text() == "xx"


def test_a_training_piece_needs_no_gpu_where_the_cpu_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "gpus", lambda: 0)
    for platform, refused in (("cpu", {"bare_engine"}), ("", {piece.name for piece in PIECES if piece.gpus})):
        monkeypatch.setenv("VERL_PLATFORM", platform)
        assert {piece.name for piece in PIECES if "GPU(s) needed" in piece.missing()} == refused
        assert max(piece.most_seconds() for piece in PIECES) == (1440 if platform else 480)


def test_the_minutes_of_one_gpu_are_those_that_the_readme_names() -> None:
    readme = (ROOT / "tests/gpu/README.md").read_text()
    pieces = [piece for piece in PIECES if piece.gpus < 2 and not piece.where]
    real = sum(piece.minutes for piece in pieces if piece.name.startswith("qwen_"))
    others = sum(piece.minutes for piece in pieces) - real
    assert f"about {5 * round(others / 5)} minutes on one GPU, and {real:g} for the real sizes" in readme


def test_no_piece_may_take_more_than_eight_minutes_and_names_are_unique(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    assert max(piece.most_seconds() for piece in PIECES) <= 480
    assert len({piece.name for piece in PIECES}) == len(PIECES)


STEP = {
    "agent/unscored": 0, "actor/grad_norm": 1.0, "actor/pg_loss": 0.1, "timing_s/step": 2.0, "timing_s/gen": 1.0,
    "response_length/mean": 100.0, "training/rollout_probs_diff_mean": 1e-3,
}  # fmt: skip


def test_what_a_training_piece_must_show() -> None:
    check({1: STEP, 2: STEP}, stale=False)
    assert figures({1: STEP, 2: STEP})["generated tokens/s"] == 3200
    assert "generated tokens/s" not in figures({1: STEP, 2: STEP}, of_a_gpu=False)
    check({1: STEP, 2: {**STEP, "training/rollout_probs_diff_mean": 0.5}}, stale=True)
    for wrong in (
        {"training/rollout_probs_diff_mean": 0.5}, {"agent/unscored": 2}, {"actor/grad_norm": 0.0},
        {"actor/pg_loss": float("nan")}, {"training/rollout_actor_probs_pearson_corr": 0.4},
    ):  # fmt: skip
        with pytest.raises(SystemExit, match="step 2"):
            check({1: STEP, 2: {**STEP, **wrong}}, stale=False)
    with pytest.raises(SystemExit, match="steps"):
        check({1: STEP, 3: STEP}, stale=False)


@pytest.mark.recipes
@pytest.mark.parametrize(("platform", "device"), [("", "cuda"), ("cpu", "cpu")])
def test_every_training_piece_composes(
    platform: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.gpu import training_run

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("VERL_PLATFORM", platform)
    monkeypatch.setattr(training_run, "make_inputs", lambda out: None)
    composed = 0
    for piece in PIECES:
        if "tests.gpu.training_run" in piece.command and not piece.where:
            *_, name, recipe = piece.command[:5]
            overrides = [word.replace("{out}", str(tmp_path)) for word in piece.command[5:]]
            config = compose(recipe, [*training_run.settings(tmp_path, tmp_path / name, recipe), *overrides])
            assert config.trainer.device == device
            composed += 1
    assert composed > 15


@pytest.mark.recipes
def test_the_engine_free_part_runs_on_a_cpu(tmp_path: Path) -> None:
    names = ["environment", "log_probs", "fused_loss", "update", "estimate", "bare_engine"]
    command = ["bash", "tests/gpu/run.sh", str(tmp_path), "--only", *names]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = json.loads((tmp_path / "report.json").read_text())
    assert [name for name, answer in answers.items() if answer["status"] == "ok"] == names[:-1]
    assert answers["bare_engine"]["why"] == "1 GPU(s) needed, 0 here"
    assert answers["log_probs"]["figures"]["greatest error"] < 1e-4
    assert answers["fused_loss"]["figures"]["difference"] < 1e-4
    assert answers["update"]["figures"]["grad norm"] > 0
    of_a_gpu = [
        name for answer in answers.values() for name in answer.get("figures", ()) if name.endswith(("ms", "/s"))
    ]
    assert of_a_gpu == []  # small sizes on a CPU say nothing about speed
    assert answers["estimate"]["figures"]["measured GiB"] == "only on a GPU"
    assert "| update: " in (tmp_path / "report.md").read_text()
    assert plan.main([str(tmp_path), "--only", "environment"]) == 0
