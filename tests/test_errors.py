import pickle

import pytest

from agent_rl import errors
from agent_rl.errors import ConfigError, did_you_mean, reason_of

PLAIN = [getattr(errors, name) for name in errors.__all__ if name not in ("ConfigError", "did_you_mean", "reason_of")]


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
def test_errors_cross_process_boundaries(kind):
    copy = pickle.loads(pickle.dumps(kind("what happened")))
    assert type(copy) is kind
    assert str(copy) == "what happened"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_config_error_crosses_with_its_parts(protocol):
    error = ConfigError("agent_rl.trace.path", "cannot be written", "Name another file")
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is ConfigError
    assert (copy.key, copy.problem, copy.remedy) == ("agent_rl.trace.path", "cannot be written", "Name another file")
    assert str(copy) == str(error) == "agent_rl.trace.path: cannot be written. Name another file"


def test_a_failure_has_one_owner():
    owners = (errors.ObservationError, errors.UnscoredError, errors.FatalError)
    for kind in PLAIN:
        assert issubclass(kind, errors.AgentRLError)
        assert sum(issubclass(kind, owner) for owner in owners) == (kind is not errors.AgentRLError)
    assert issubclass(ConfigError, errors.FatalError)


def test_the_reason_of_an_error_has_neither_its_number_nor_its_path():
    assert reason_of(FileNotFoundError(2, "No such file", "a")) == "there is no such file or folder"
    assert reason_of(PermissionError(13, "Permission denied", "a")) == "Permission denied"
    assert reason_of(ValueError("not JSON")) == "not JSON"


def test_the_nearest_known_name_is_suggested():
    assert did_you_mean("wieght", ["weight", "floor"]) == "Did you mean 'weight'? Known: floor, weight."
    assert did_you_mean("xyz", ["weight", "floor"]) == "Known: floor, weight."
    assert did_you_mean("xyz", []) == "Known: none."
    assert did_you_mean("a", iter(["b", "a"])) == "Did you mean 'a'? Known: a, b."
    many = [*(f"{number}" for number in range(40)), "weight", "weigh"]
    assert did_you_mean("weigth", [*many[:9], "weight"]) == "Did you mean 'weight'?"
    assert did_you_mean("xyz", many[:9]).startswith("Known: ")
    assert did_you_mean("weigth", many) == "Did you mean 'weigh' or 'weight'?"
    assert did_you_mean("xyz", many) == "None of the 42 known names is similar."
