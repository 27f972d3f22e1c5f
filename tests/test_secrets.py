"""Secrets are read from the environment, and recognised in what others write."""

import base64
import html
import json
from urllib.parse import quote

import numpy as np
import pytest

from agent_rl.errors import ConfigError
from agent_rl.secrets import Redactor, Secrets, secret

KEY = 'pa/ss "word"&1'


@pytest.mark.parametrize(
    "form",
    [KEY, KEY.upper(), quote(KEY, safe=""), json.dumps(KEY), html.escape(KEY), base64.b64encode(KEY.encode()).decode()],
)
def test_a_secret_is_recognised_in_the_usual_encodings(form: str) -> None:
    shown = Secrets([KEY]).hide(f"before {form} after")
    assert "***" in shown
    assert "word" not in shown.lower()
    assert shown.startswith("before ")
    assert shown.endswith(" after")


def test_a_secret_that_is_cut_off() -> None:
    assert Secrets(["abcdefgh"]).hide("x abcdef", cut=True) == "x ***"
    assert Secrets(["abcdefgh"]).hide("x abcdef") == "x abcdef"


def test_short_values_are_not_redacted() -> None:
    assert Secrets(["abc"]).hide("abc") == "abc"
    assert Secrets([]).hide("abc", cut=True) == "abc"
    assert Secrets(["a\\1b*"], "[\\g<0>]").hide("a\\1b*") == "[\\g<0>]"


def test_a_variable_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", " value ")
    assert secret("MY_KEY") == "value"
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(ConfigError, match=r"auth\.env: the environment variable MY_KEY is not set\. Export it"):
        secret("MY_KEY", key="auth.env")


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("api_key", True),
        ("apiKey", True),
        ("X-API-Key", True),
        ("Authorization", True),
        ("access_token", True),
        ("accessToken", True),
        ("password", True),
        ("client_secret", True),
        ("cookies", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("tokens", False),
        ("max_tokens", False),
        ("token_count", False),
        ("tokenizer", False),
        ("key", False),
        ("keyword", False),
        ("primary_key", False),
        ("secretary", False),
    ],
)
def test_which_names_are_secret(name, secret):
    assert Redactor({})({name: "value"}) == {name: "[redacted]" if secret else "value"}


def test_secrets_of_the_environment_are_found_in_any_text():
    redact = Redactor(
        {"MY_API_KEY": "hush-hush", "MY_API_KEY_ID": "hush-hush-id", "PIN_TOKEN": "1234", "HOME": "/home/me"}
    )
    assert redact(["a hush-hush b", {"hush-hush": 1}, "1234 in /home/me"]) == [
        "a [redacted] b",
        {"[redacted]": 1},
        "1234 in /home/me",
    ]


def test_values_that_are_not_json_are_converted():
    deep = value = []
    for _ in range(200):
        value.append([])
        value = value[0]
    assert Redactor({})({"array": np.arange(2), 3: (1, None), "object": {1}}) == {
        "array": [0, 1],
        "3": [1, None],
        "object": "{1}",
    }
    assert "[nested too deeply]" in str(Redactor({})(deep))
