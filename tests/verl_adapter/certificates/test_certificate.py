"""Certificates: known results, planted errors, and the committed table."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.errors import ConfigError
from agent_rl.verl_adapter.certificates import methods
from agent_rl.verl_adapter.certificates.certificate import LARGE, certify, certify_process, summarize, world
from agent_rl.verl_adapter.certificates.gradients import Method
from agent_rl.verl_adapter.certificates.processes import PROCESSES
from tests.support.profiles import FULL, bounded
from tests.verl_adapter.certificates.planted import NAMED, PLANTED, with_token_mean

TABLE = Path(__file__).parents[3] / "docs/reference/certificates.json"
SMALL = [process for process in PROCESSES if process.name in ("lengths", "folded", "all_equal")]


def user(function: Any) -> Method:
    return dataclasses.replace(methods.method("rloo"), estimator=function, is_coupled=True)


@pytest.mark.parametrize("error", PLANTED)
def test_a_planted_error_is_caught(error: str) -> None:
    planted, honest, process, by = PLANTED[error]
    reference = certify_process(world(NAMED[process]), user(honest))
    assert reference["error"] < 1e-6
    assert not reference["padding"]
    method = with_token_mean(user(planted)) if error.startswith("token-mean") else user(planted)
    row = certify_process(world(NAMED[process]), method)
    signs = {
        "direction": row["cosine"] < 1 - 1e-4,
        "length": row["cosine"] > 1 - 1e-9 and abs(row["length"] - 1) > 1e-3,
        "variance": row["error"] < 1e-6 and row["variance"] > 1.01 * reference["variance"],
        "padding": row["padding"],
    }
    assert [sign for sign, is_seen in signs.items() if is_seen] == [by], row


def test_normalizing_per_turn_index_can_point_the_wrong_way() -> None:
    """As docs/guides/algorithms.md says."""
    planted = PLANTED["normalized per turn index"][0]
    assert certify_process(world(NAMED["lengths"]), user(planted))["cosine"] < -0.9


@pytest.mark.parametrize("mode", ["token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm"])
@pytest.mark.parametrize("name", ["rloo", "algo=turn"])
def test_sums_over_tokens_give_the_exact_gradient(name: str, mode: str) -> None:
    method = methods.method(name)
    actor = dataclasses.replace(method.actor, loss_agg_mode=mode, loss_scale_factor=7)
    for process in PROCESSES if mode == "token-sum" else SMALL:
        row = certify_process(world(process), dataclasses.replace(method, actor=actor))
        assert row["error"] < 1e-6, row


def test_known_results() -> None:
    """Without std, the mean that includes the sample gives (1 - 1/n) times the gradient; and two other objectives."""
    for process in SMALL:
        row = certify_process(world(process), methods.method("grpo without std"))
        assert row["length"] == pytest.approx(1 - 1 / process.members, abs=1e-6)
        assert row["cosine"] == pytest.approx(1, abs=1e-9)
        assert certify_process(world(process), methods.method("grpo_passk without std"))["error"] < 1e-6
    two_levels = certify_process(world(NAMED["all_equal"]), methods.method("grpo"))
    assert (two_levels["declared"], two_levels["error"] < 1e-6) == (True, True)
    three_levels = certify_process(world(NAMED["lengths"]), methods.method("grpo"))
    assert (three_levels["declared"], three_levels["cosine"] < 0.999) == (False, True)


@bounded
def test_every_method_has_its_committed_certificate() -> None:
    """`make certify` writes the table; here the small batches of one small process, or of all, are computed again."""
    table = {own["name"]: own for own in json.loads(TABLE.read_text())["certificates"]}
    assert list(table) == methods.find([])
    for number, (name, committed) in enumerate(table.items()):
        rows = {row["process"]: row for row in committed["processes"]}
        certified = summarize(name, methods.method(name), list(rows.values()))
        assert (certified["objective"], certified["verdict"]) == (committed["objective"], committed["verdict"])
        for process in SMALL if FULL else [SMALL[number % len(SMALL)]]:
            row, expected = certify_process(world(process), methods.method(name), LARGE[:1]), rows[process.name]
            assert row["large"] == pytest.approx(expected["large"][:1], abs=1e-7), (name, process.name)
            for key in ("cosine", "length", "variance") if row["error"] is not None else ():
                assert row[key] == pytest.approx(expected[key], abs=1e-7), (name, process.name, key)


def test_a_users_function_is_found_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def verls(token_level_rewards, response_mask, index, **_):\n"
        "    advantages = token_level_rewards.sum(-1, keepdim=True) * response_mask\n"
        "    return advantages, advantages\n"
        "def ours(data, batch_keys, **options):\n"
        "    from agent_rl.verl_adapter.algorithms.advantages import estimate\n"
        "    return estimate(data, batch_keys, **{**options, 'adv_estimator': 'rloo'})\n"
        "number = 3\n"
    )
    for name in ("verls", "ours"):
        method = methods.user_method(f"{file}:{name}")
        certificate = summarize(name, method, [certify_process(world(process), method, ()) for process in SMALL])
        assert (certificate["objective"], certificate["verdict"]) == ("E[R]", "exact")
    with pytest.raises(ConfigError, match="not a function"):
        list(certify([], f"{file}:number"))
    with pytest.raises(ConfigError, match="Did you mean"):
        list(certify(["rlo"]))
