"""A receipt says what came out with intervals, and no longer fits when the recipe changes."""

import json
from pathlib import Path

import pytest

from agent_rl.evaluation.experiments.experiment import Experiment
from agent_rl.evaluation.experiments.outcome import RunOutcome, success
from agent_rl.evaluation.experiments.receipt import RECEIPT, check, hashes, verdicts, write_curve
from agent_rl.settings import EfficiencySettings
from agent_rl.trajectory.estimates import estimate_rate

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("after", "oracle", "no_tool", "holds"),
    [
        (0.9, 1.0, 0.1, (True, True, True)),
        (0.35, 0.99, 0.2, (False, False, False)),
        (0.9, 1.0, 0.75, (True, True, False)),
        (1.0, 1.0, 0.8, (True, True, True)),  # 1.0 - 0.8 is less than 0.2 in floating point
    ],
)
def test_what_is_asked_of_a_cpu_version(after, oracle, no_tool, holds):
    def rate(share):
        return estimate_rate([[float(n < share * 300)] for n in range(300)])

    gain = success({n: [float(n < 90)] for n in range(300)}, {n: [float(n < after * 300)] for n in range(300)})[2]
    outcome = RunOutcome(rate(0.3), rate(after), gain)
    assert list(verdicts([], {"oracle": rate(1.0), "no_tool": rate(0.0)}).values()) == [False, True, False]
    assert tuple(verdicts([outcome], {"oracle": rate(oracle), "no_tool": rate(no_tool)}).values()) == holds


@pytest.mark.parametrize(
    ("before", "after", "alone", "holds"),
    [(0.4, 0.95, 0.73, [True, True]), (0.4, 0.85, 0.73, [True, False]), (0.6, 0.7, 0.2, [True, False]),
     (0.1, 0.69, 0.2, [False, True]), (0.1, 0.7, 0.55, [True, True])],
)  # fmt: skip
def test_what_is_asked_of_a_judge(before, after, alone, holds):
    rate = estimate_rate([[1.0], [0.0]])
    start, end, feature = ({"spearman": spearman, "unparsable": 0.0} for spearman in (before, after, alone))
    policies = {"oracle": rate, "by_tone": rate}
    found = verdicts(
        [RunOutcome(rate, rate, rate, judgements=(start, end))], policies, {"by_tone": feature}, ["by_tone"]
    )
    assert list(found)[2:] == [
        "by_tone_at_least_0.2_below", "spearman_at_least_0.7", "spearman_0.15_above_start_and_baselines"
    ]  # fmt: skip
    assert list(found.values())[3:] == holds


def test_the_curve_is_written_as_numbers_and_as_a_picture(tmp_path):
    rate = estimate_rate([[1.0], [0.0], [1.0]])
    run = RunOutcome(rate, rate, rate, curve=[(1, 0.25), (2, 0.5)])
    write_curve(tmp_path, {"seed 1": run}, {"oracle": rate}, "a recipe")
    assert (tmp_path / "curve.csv").read_text() == "run,step,success\nseed 1,1,0.25\nseed 1,2,0.5\n"
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_hashes_follow_configuration_and_rows(tiny_recipe, monkeypatch):
    first = hashes(str(tiny_recipe))
    monkeypatch.setenv("HOME", "/")  # as in some containers
    assert hashes(str(tiny_recipe)) == first
    results = tiny_recipe / "results/variant"  # as deep as --out may put it
    results.mkdir(parents=True)
    receipt = {"command": f"agent-rl experiment {tiny_recipe} --seeds 1", "hashes": first}
    (results / RECEIPT).write_text(json.dumps(receipt))
    assert check(tiny_recipe) == []
    size = tiny_recipe / "size/cpu.yaml"
    before = size.read_text()
    try:
        size.write_text(before.replace("held_out: 12", "held_out: 11"))
        found = check(tiny_recipe)
    finally:
        size.write_text(before)
        (results / RECEIPT).unlink()
    assert [each.split(": ")[1].split(" has")[0] for each in found] == ["the configuration", "the rows"]


@pytest.mark.slow
def test_a_receipt_with_the_old_name_of_a_scorer_is_hashed_again_and_no_other(tiny_recipe):
    scorer = "agent_rl.reward.correctness.scorer"
    words = [f"{scorer}={{name: math, strict: true}}"]
    old, changed = (hashes(str(tiny_recipe), words, name) for name in ("math_strict", "math"))
    assert hashes(str(tiny_recipe), [f"{scorer}=math_strict"]) == hashes(str(tiny_recipe), words) != old
    file = tiny_recipe / "results" / RECEIPT
    file.parent.mkdir(exist_ok=True)
    for known, stale in ((old, []), (changed, ["the reward"])):
        file.write_text(json.dumps({"command": "", "overrides": words, "hashes": known}))
        assert [text.split(": ")[1].split(" has")[0] for text in check(tiny_recipe)] == ["the reward"]
        assert [text.split(": ")[1].split(" has")[0] for text in check(tiny_recipe, rehash=True)] == stale
        assert len(check(tiny_recipe)) == len(stale)
    file.unlink()


@pytest.mark.slow
def test_another_default_of_the_reward_is_another_reward_and_its_spelling_is_not(tiny_recipe, monkeypatch):
    first = hashes(str(tiny_recipe))
    assert hashes(str(tiny_recipe), ["agent_rl.reward.format.turns=3"]) == first
    assert hashes(str(tiny_recipe), ["agent_rl.reward.efficiency.free_calls=3"])["reward"] != first["reward"]
    monkeypatch.setattr(EfficiencySettings, "_counted", 2.0)
    named = hashes(str(tiny_recipe), ["agent_rl.reward.efficiency.free_calls=3"])
    assert named == {**first, "reward": named["reward"]}
    assert named != hashes(str(tiny_recipe), ["agent_rl.reward.efficiency.weight=1"])


@pytest.mark.parametrize("recipe", sorted(path.parent for path in ROOT.glob("recipes/*/results")), ids=lambda p: p.name)
def test_receipts_of_the_gallery_hold(recipe):
    receipt = json.loads((recipe / "results" / RECEIPT).read_text())
    is_small = "overrides" not in receipt  # otherwise a published model, which takes half an hour a seed
    assert len(receipt["runs"]) == (3 if is_small else 1)
    assert receipt["held_out_rows"] in ((256, 300) if is_small else (200,))
    assert all(receipt["holds"].values())
    assert {"curve.csv", "curve.png"} <= {path.name for path in (recipe / "results").iterdir()}


@pytest.mark.slow
def test_words_for_all_runs_are_in_the_hashes_and_a_data_set_that_is_not_at_hand_is_not(tiny_recipe, tmp_path):
    words = ["agent_rl.cold_start.rows=recipe", f"data.train_files={tmp_path}/absent.parquet"]
    run = Experiment(str(tiny_recipe), 1, [*words, "data.seed=1,2"], tmp_path)
    assert run.variants == [["data.seed=1"], ["data.seed=2"]]
    assert list(hashes(str(tiny_recipe), words)) == ["configuration", "reward"]
    results = tiny_recipe / "results"
    results.mkdir(exist_ok=True)
    receipt = {"command": "", "overrides": words, "hashes": {**hashes(str(tiny_recipe), words), "rows": "of others"}}
    (results / RECEIPT).write_text(json.dumps(receipt))
    found = check(tiny_recipe)
    (results / RECEIPT).unlink()
    assert found == []
