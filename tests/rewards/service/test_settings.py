"""The service's file is read, and what is wrong in it is named."""

from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.rewards.service.settings import ServiceSettings, read_settings
from agent_rl.settings import RewardSettings


def written(folder: Path, text: str) -> Path:
    path = folder / "service.yaml"
    path.write_text(text)
    return path


def test_a_file_its_environment_and_words_that_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_HOST", "localhost")
    path = written(tmp_path, "host: ${oc.env:MY_HOST}\nrules:\n  format: {weight: 0.5}\n")
    settings = read_settings(path, ["port=9000", "rules.efficiency.free_calls=7"])
    assert (settings.host, settings.port) == ("localhost", 9000)
    assert settings.rules is not None
    assert (settings.rules.format.weight, settings.rules.efficiency.free_calls) == (0.5, 7)
    assert settings.judge is None


def test_a_relative_rules_file_starts_at_the_folder_of_the_configuration(tmp_path: Path) -> None:
    assert read_settings(written(tmp_path, "rules_file: mine.py\n")).rules_file == str(tmp_path / "mine.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot: 80\nrules: {}\n", "prot: unknown key.*Did you mean 'port'"),
        ("port: 99999\nrules: {}\n", "service.yaml:1: port: expected .* at most 65535"),
        ("rules: {formt: {}}\n", r"rules.formt: unknown key.*Did you mean 'format'"),
        ("port: 80\n", "rules: the service has no reward"),
        ("host: ${oc.env:NOT_SET_ANYWHERE}\nrules: {}\n", "host: .*NOT_SET_ANYWHERE"),
        ("- rules\n", "service.yaml"),
        ("rules: [\n", "service.yaml"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        read_settings(written(tmp_path, text))


def test_a_missing_file_and_an_override_without_a_value(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        read_settings(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="fast: an override needs a value"):
        read_settings(written(tmp_path, "rules: {}"), ["fast"])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_this_machine_needs_no_token(host: str) -> None:
    assert ServiceSettings(host=host, rules=RewardSettings()).token() is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "reward-host", ""])
def test_a_public_address_needs_a_token(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"host: .* Set token_env"):
        ServiceSettings(host=host).token()
    with pytest.raises(ConfigError, match="token_env: the environment variable MY_TOKEN is not set"):
        ServiceSettings(host=host, token_env="MY_TOKEN", insecure=True).token()
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    assert ServiceSettings(host=host, token_env="MY_TOKEN").token() == "s3cret"
    assert ServiceSettings(host=host, insecure=True).token() is None
