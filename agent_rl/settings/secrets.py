"""Reads secrets from the environment (`secret`), and removes them from strings and files (`Secrets`, `Redactor`).

A secret is recognized verbatim and in percent, base64, JSON or HTML encoding, but in no other encoding. A secret that
is not declared is recognized only by its first characters or by the word before it.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from agent_rl.errors import ConfigError

SHORTEST_SECRET = 4
"""Minimum length, in characters, of a value that is recognized as a secret."""

_REDACTED = "[redacted]"
_MAX_DEPTH = 100
_MIN_SECRET = 8  # minimum length of an environment variable's value to hide, in characters
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_SECRET_NAME = re.compile(
    r"(^|_)(authorization|cookies?|passwords?|passwd|secrets?|api_?keys?|(access|private|secret)_key)(_|$)|(^|_)token$"
)
_SECRET_VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)

_BEGINNINGS = r"""
sk-(?=[\w-]{0,80}[0-9])[\w-]{16,} | (?:sk|rk|pk)_(?:live|test)_\w{16,} | gh[oprsu]_\w{20,} | github_pat_\w{20,}
| glpat-[\w-]{16,} | hf_[A-Za-z0-9]{20,} | xox[abeoprs]-[\w-]{10,} | xapp-[\w-]{10,} | (?:AKIA|ASIA)[A-Z0-9]{16}
| AIza[\w-]{30,} | ya29\.[\w-]{20,} | npm_[A-Za-z0-9]{30,} | pypi-[\w-]{40,} | SG\.[\w-]{16,200}\.[\w-]{16,}
| (?:gsk|r8|lsv2_pt|lsv2_sk|fw)_\w{20,} | (?:nvapi|tvly|pplx|xai|dapi)-[\w-]{20,} | dop_v1_\w{30,}
| eyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{0,4000}
"""
"""Patterns for service keys with a fixed prefix, and for JSON web tokens."""
_KEY_LIKE = re.compile(
    rf"""(?<![A-Za-z0-9])(?:{_BEGINNINGS})
| -----BEGIN\ [A-Z ]{{0,40}}PRIVATE\ KEY-----(?:[^-]|-(?!----)){{0,20000}}(?:-----END\ [A-Z ]{{0,40}}PRIVATE\ KEY-----)?
| (?i:(?<=://)[^\s/:@]{{0,200}}:(?=[^\s/@]{{3,200}}@)) (?P<password>[^\s/@]{{3,200}})
| (?i:\b(?:bearer|basic|token)\ +) (?P<header>(?=[^\s"']{{0,200}}[0-9])[\w.~+/=-]{{16,4000}})
| (?i:(?:api[_-]?key|access[_-]?key|secret|token|passwd|password)["']?\ *[:=]\ *["']?)
  (?P<assigned>(?=[^\s"']{{0,200}}[0-9])[\w.~+/%-]{{16,4000}})
""",
    re.VERBOSE,
)
"""Pattern for text that looks like a key of any service; the named group that matched, if any, is the secret part."""


def is_secret_variable(name: str) -> bool:
    """Whether the name of an environment variable suggests a secret."""
    return _SECRET_VARIABLE.search(name) is not None


def secret(variable: str, *, key: str = "api_key_env") -> str:
    """Return the API key in an environment variable.

    Args:
        variable: the variable's name.
        key: the configuration key that contains the variable's name, for the error.

    Raises:
        ConfigError: the variable is not set, is empty, or cannot be sent in a header.
    """
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(key, f"the environment variable {variable} is not set", "Export the variable first")
    if not (value.isascii() and value.isprintable()):
        raise ConfigError(
            key,
            f"the environment variable {variable} contains characters that an API key cannot contain",
            "Export only the key",
        )
    return value


class Secrets:
    """Replaces secret values in strings.

    Args:
        values: the secrets.
        mark: the text that replaces a secret.
    """

    def __init__(self, values: Iterable[str], mark: str = "***") -> None:
        self._mark = mark
        self._forms = sorted({form for value in values for form in _forms(value)}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._forms)), re.IGNORECASE) if self._forms else None

    def hide(self, text: str, *, cut: bool = False) -> str:
        """Replace each secret in `text`; if the text was `cut`, also replace a partial secret at its end."""
        if self._pattern is None:
            return text
        text = self._pattern.sub(lambda _: self._mark, text)
        if cut:
            partial = max((_overlap(text, form) for form in self._forms), default=0)
            text = f"{text[: len(text) - partial]}{self._mark}" if partial else text
        return text


class Redactor:
    """Copies a value as JSON data, and removes secrets from the copy before it is written to a file.

    A value under a name such as `api_key` or `password` is a secret, and so is the value of an environment variable
    whose name ends in KEY, TOKEN, SECRET or PASSWORD. Text that looks like a key is also removed: a known service's
    key, a private key, a JSON web token, the password in a URL, and the text after `Bearer` or `api_key=`.

    Args:
        environment: the variables, normally `os.environ`.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        secrets = {
            value for name, value in environment.items() if _SECRET_VARIABLE.search(name) and len(value) >= _MIN_SECRET
        }
        self._secrets = Secrets(secrets, _REDACTED)

    def __call__(self, value: Any, depth: int = 0) -> Any:
        """Return the redacted copy; values that are neither JSON data nor numpy values become strings."""
        if isinstance(value, str):
            return _KEY_LIKE.sub(_without_key, self._secrets.hide(str.__str__(value)))
        if value is None or isinstance(value, bool | int | float):
            return value
        if depth == _MAX_DEPTH:
            return "[nested too deeply]"
        if isinstance(value, Mapping):
            return {
                self(str(name)): _REDACTED if _is_secret(str(name)) and item is not None else self(item, depth + 1)
                for name, item in value.items()
            }
        if hasattr(value, "tolist"):  # a numpy value, for example from a parquet file
            return self(value.tolist(), depth + 1)
        if isinstance(value, list | tuple):
            return [self(item, depth + 1) for item in value]
        return self(str(value))


def _forms(value: str) -> set[str]:
    """Return the forms in which a server may echo `value`."""
    if len(value) < SHORTEST_SECRET:
        return set()
    encoded = base64.b64encode(value.encode("utf-8", "surrogateescape")).decode()
    escaped = json.dumps(value)[1:-1]
    return {
        value,
        quote(value, safe="", errors="replace"),
        escaped,
        value.replace("/", "\\/"),
        html.escape(value),
        encoded,
    }


def _without_key(match: re.Match[str]) -> str:
    part = match.lastgroup
    return _REDACTED if part is None else match[0].removesuffix(match[part]) + _REDACTED


def _overlap(text: str, form: str) -> int:
    """Return the length of the longest prefix of `form` at the end of `text`, or 0 if it is below `SHORTEST_SECRET`."""
    longest = min(len(form) - 1, len(text))
    tail = text[len(text) - longest :].lower()
    return next((n for n in range(longest, SHORTEST_SECRET - 1, -1) if tail[longest - n :] == form[:n].lower()), 0)


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(_WORD_START.sub("_", name).lower()) is not None
