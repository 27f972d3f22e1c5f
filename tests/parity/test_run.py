"""What counts as a difference between two runs."""

import sys
from pathlib import Path

import pytest

from tests.parity.run import ROOT, differences, interpreter, report

TIMES = (
    *("timing_s/step", "timing_per_token_ms/gen", "perf/throughput", "critic/perf/cpu_memory_used_gb"),
    *("agent/tool_seconds", "val-aux/data/generation_seconds/mean@1"),
)


@pytest.mark.parametrize("name", TIMES)
def test_times_and_memory_may_differ(name):
    assert differences({"1": {name: 0.1}}, {"1": {name: 0.2}}) == []
    assert differences({"1": {name: 0.1}}, {"1": {}}) == []


@pytest.mark.parametrize("name", ["agent/stop_max_seconds", "actor/loss"])
def test_every_digit_of_the_others_counts(name):
    line = f"step 1 {name}: 0.30000000000000004 and 0.3"
    assert differences({"1": {name: 0.1 + 0.2}}, {"1": {name: 0.3}}) == [line]


def test_a_step_or_metric_that_only_one_has_is_a_difference():
    one, other = {"1": {"a": 1}}, {"1": {"a": 1, "b": 2}, "2": {"a": 1}}
    assert differences(one, other) == ["step 1 b: 'absent' and 2", "step 2 a: 'absent' and 1"]


def test_a_run_that_failed_equals_none():
    failed = {"failed": {"exit status": 1}}
    assert len(differences(failed, {"1": {"a": 1}})) == len(differences(failed, failed)) == 1


def test_results_without_a_common_case_are_not_equal(capsys):
    one = {"versions": {"verl": "0.9.1"}, "cases": {"sync_grpo": {"1": {"a": 1}}}}
    assert report(one, one)
    assert not report(one, {"versions": {"verl": "0.10.0"}, "cases": {}})
    assert "verl: 0.9.1 and 0.10.0" in capsys.readouterr().out


def test_a_checkout_is_run_with_its_own_environment_and_an_environment_runs_this_checkout(tmp_path):
    assert interpreter(tmp_path) == (Path(sys.executable), tmp_path)
    for folder in (tmp_path / "checkout/.venv", tmp_path / "environment"):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin/python").touch()
    assert interpreter(tmp_path / "checkout") == (tmp_path / "checkout/.venv/bin/python", tmp_path / "checkout")
    assert interpreter(tmp_path / "environment") == (tmp_path / "environment/bin/python", ROOT)
