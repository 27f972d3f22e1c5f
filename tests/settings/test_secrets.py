"""Secrets are read from the environment, and recognised in what others write."""

import base64
import html
import json
import time
from urllib.parse import quote

import numpy as np
import pytest

from agent_rl.errors import ConfigError
from agent_rl.settings.secrets import Redactor, Secrets, secret

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
    with pytest.raises(ConfigError, match=r"auth\.env: the environment variable MY_KEY is not set\. Export the"):
        secret("MY_KEY", key="auth.env")
    monkeypatch.setenv("MY_KEY", "hidden\u2026")
    with pytest.raises(ConfigError, match="MY_KEY contains characters") as caught:
        secret("MY_KEY")
    assert "hidden" not in str(caught.value)


SECRET = (
    "api_key apiKey X-API-Key Authorization access_token accessToken password client_secret cookies "
    "AWS_SECRET_ACCESS_KEY"
)
PLAIN = "tokens max_tokens token_count tokenizer key keyword primary_key secretary"


@pytest.mark.parametrize("name", SECRET.split())
def test_these_names_are_secret(name):
    assert Redactor({})({name: "value"}) == {name: "[redacted]"}


@pytest.mark.parametrize("name", PLAIN.split())
def test_these_names_are_not_secret(name):
    assert Redactor({})({name: "value"}) == {name: "value"}


def test_secrets_of_the_environment_are_found_in_any_text():
    redact = Redactor(
        {"MY_API_KEY": "hush-hush", "MY_API_KEY_ID": "hush-hush-id", "PIN_TOKEN": "1234", "HOME": "/home/me"}
    )
    assert redact(["a hush-hush b", {"hush-hush": 1}, "1234 in /home/me"]) == [
        "a [redacted] b",
        {"[redacted]": 1},
        "1234 in /home/me",
    ]


BODY = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
BEGINNINGS = "sk- sk-ant- sk-proj- sk_live_ ghp_ github_pat_ glpat- hf_ xoxb- AIza npm_ gsk_ nvapi- tvly- pypi-"
KEYS = {
    **{start: start + BODY for start in BEGINNINGS.split()},
    "AWS": "AKIA" + BODY.upper()[:16],
    "SendGrid": f"SG.{BODY[:20]}.{BODY}",
    "a JSON web token": f"eyJ{BODY}.eyJ{BODY}.{BODY}",
    "a private key": f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_what_begins_like_a_services_key_is_found_in_any_text(key: str) -> None:
    assert Redactor({})(f"The key is {key}, keep it.") == "The key is [redacted], keep it."
    assert Redactor({})({"a": [key, f"x={key}"]}) == {"a": ["[redacted]", "x=[redacted]"]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Authorization: Bearer {BODY}", "Authorization: Bearer [redacted]"),
        (f"curl -H 'X-Api-Key: {BODY}'", "curl -H 'X-Api-Key: [redacted]'"),
        (f"GET /v1?q=cats&api_key={BODY}&page=2", "GET /v1?q=cats&api_key=[redacted]&page=2"),
        (f'{{"access_token": "{BODY}"}}', '{"access_token": "[redacted]"}'),
        ("postgres://me:pa55word@host/db", "postgres://me:[redacted]@host/db"),
    ],
)
def test_what_stands_where_keys_stand_is_found(text: str, shown: str) -> None:
    assert Redactor({})(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "token = tokenizer.decode(ids)", "password = getpass.getpass(prompt_for_the_user)", "the api_key: see above",
        "a risk-taking-but-otherwise-harmless-person", "sk-learn-compatible-estimators", "eyJust", "hf_hub_download",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b", "https://host:8080/a@b", "basic responsibilities of a judge",
        "bearer_certificates_and_more", "AKIA", "123e4567-e89b-12d3-a456-426614174000", "max_tokens: 4096",
        "-----BEGIN",
    ],
)  # fmt: skip
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert Redactor({})(text) == text


@pytest.mark.parametrize(
    "piece", ["token=", "bearer 1", "sk-", "://a:", "eyJaaaaaaaaaaa.", "-eyJ", ".SG.", "-----BEGIN PRIVATE KEY-----"]
)
def test_looking_for_keys_takes_time_in_proportion_to_the_text(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        started = time.process_time()
        Redactor({})(text)
        return time.process_time() - started

    assert seconds(200_000) < 20 * seconds(25_000) + 0.1


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
