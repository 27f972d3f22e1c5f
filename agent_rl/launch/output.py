"""Reads a trainer's output: lines of its log, metrics, and the cause of a failure.

verl, Ray and the engine write more than a thousand lines to the log before the first step.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent_rl.work.text import named

MESSAGE = "agent_rl: "
"""Prefix of the log lines that are shown to the user."""

WRONG = 2
"""Exit status of a trainer that rejects its configuration, or the user's code, before it starts."""
LAST_LINES = 15
"""Number of log lines in a failure's message."""
ROOM = 1 << 20
"""Free bytes below which a folder counts as full; not 0, because the file that did not fit has usually been deleted."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX = re.compile(r"^(?:\([A-Za-z_]\w* [^)]*\) ?|\[rank\d+\]: ?)")
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception)|Exception)(?:: (.+))?$")
"""The last line of a traceback; an exception without a message, such as that of a bare `assert`, is only a name."""
_WRAPPERS = ("ray.exceptions.RayTaskError", "torch.distributed.elastic.")
"""Exceptions that wrap an exception from another process."""
_NO_ENGINE = re.compile("ActorDiedError|ActorUnavailableError|Failed to complete async request|Cannot connect to host")
"""The trainer's error when the engine's server, or another process of the run, is gone."""
_DEAD_ACTOR = re.compile(
    r"ActorDiedError: .*\n\s*class_name: (?P<name>\S+)\n\s*actor_id: .*\n\s*pid: (?P<pid>\d+)\n(\s*\w+: .*\n)*?"
    r"\s*ip: (?P<ip>\S+)(?P<node>\n\s*The actor died because its node has died)?"
)
_ENGINES_EXCEPTION = re.compile(r"\b\w+ hit an exception: Traceback")
_ENGINES_CRASH = re.compile(r"\bSubprocess (\w+) \(pid=\d+\) crashed with exit code (-?\d+)")
_BEGINNINGS = ("Traceback (most recent", "The above exception was", "During handling of", "Error executing job")
"""Beginnings of the lines above a traceback; hydra omits the first of these lines."""
TOTAL = re.compile(r"\bTotal training steps: (\d+)$")
"""The number of steps in a line of verl's log."""
SHARE = "{:.0%}"
"""The number format for a share of trajectories."""
_FIELDS = {
    "critic/score/mean": "reward {:+.3f}",
    "agent/acc": f"accuracy {SHARE}",
    "agent/tool_calls": "{:.1f} tool calls",
    "agent/turns": "{:.1f} turns",
    "agent/malformed_rate": "{:.0%} malformed",
    "agent/unscored": "{:.0f} unscored",
    "response_length/mean": "{:.0f} tokens",
    "timing_s/step": "{:.1f} s",
}
_QUIET = ("agent/malformed_rate", "agent/unscored")
"""Fields that are omitted when they are zero."""
_VALIDATION = re.compile(r"^val-(?:core|aux)/(.+)/(acc|reward)/mean@\d+$")


def step_line(step: int, metrics: Mapping[str, Any], total: int | None = None) -> str:
    """Summarize a step on one line: reward, accuracy, calls, turns, length, seconds, and the validation, if any."""
    fields = [(key, form, metrics.get(key)) for key, form in _FIELDS.items()]
    parts = [written(form, value) for key, form, value in fields if value or (value is not None and key not in _QUIET)]
    for source, values in validations(metrics).items():
        forms = {"reward": "reward {:+.3f}", "acc": f"accuracy {SHARE}"}
        texts = [written(form, values[name]) for name, form in forms.items() if name in values]
        parts.append(f"validation on {named(source)}: {', '.join(texts)}")
    return f"step {step}{f'/{total}' if total else ''}: {', '.join(parts) or 'no metrics'}"


def written(form: str, value: float) -> str:
    """Format a number; a share outside 0 to 1, from a scorer with other bounds, is not shown as a percentage."""
    return (form if 0 <= value <= 1 else form.replace(SHARE, "{:.3g}")).format(value)


def command(*words: str) -> str:
    """Return a command line that works in the user's shell, even if the environment is not activated."""
    program = "agent-rl"
    if shutil.which(program) is None:
        program = os.path.relpath(Path(sys.executable).parent / program)
    return shlex.join([program, *words])


def validations(metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return reward and accuracy (`reward`, `acc`) of a validation, by data source, or {} if there was none."""
    sources: dict[str, dict[str, float]] = {}
    for key, value in metrics.items():
        if match := _VALIDATION.match(key):
            sources.setdefault(match[1], {})[match[2]] = value
    return sources


def failure(log: Path, start: int, status: int, folders: Iterable[Path] = ()) -> str:
    """Describe why the trainer failed, with the last useful lines of its output and the path of the log.

    Args:
        log: the file with all output.
        start: size of the log in bytes when the trainer was started.
        status: exit status of the trainer, negative for a signal.
        folders: folders to which the trainer writes; a full folder is reported as the cause, whatever the exception
            (torch.save reports "unexpected pos 13696 vs 13588").
    """
    lines = _lines(log, start)
    if status == WRONG and (refused := next((line for line in reversed(lines) if line.startswith("error: ")), None)):
        return f"{named(refused.removeprefix('error: '))}\nThe whole output: {log}"
    cause, excerpt_lines = _cause(lines)
    if cause is not None and _NO_ENGINE.search(cause):
        cause, excerpt_lines = _engine_failure(lines) or _dead_actor(lines) or (cause, excerpt_lines)
    excerpt = "".join(f"\n  | {named(line)}" for line in excerpt_lines)
    cause = _unless_full(named(cause or _ended(status)), folders)
    return f"the trainer failed: {cause}{excerpt}\nThe whole output: {log}"


def process_end(log: Path, status: int, start: int = 0) -> str:
    """Describe why a process of verl or SGLang has ended, or has not started.

    Args:
        log: the file with the process's output.
        status: the process's exit status, negative for a signal.
        start: size of the log in bytes when the process was started.
    """
    lines = _lines(log, start)
    crash = _engine_failure(lines)
    cause = crash[0] if crash else _ended(status) if status < 0 else _cause(lines)[0] or (lines or ["no output"])[-1]
    return _unless_full(named(cause), [log.parent])


def _lines(log: Path, start: int) -> list[str]:
    with open(log, "rb") as file:
        file.seek(start)
        lines = [bare(line) for line in file.read().decode(errors="replace").splitlines()]
    return [line for line in lines if line.strip() and "HYDRA_FULL_ERROR" not in line]


def _cause(lines: list[str]) -> tuple[str | None, list[str]]:
    """Return the last exception and its traceback, or the last lines; Ray's wrapper exceptions are skipped.

    For an error from agent_rl the message is enough, and the traceback is omitted.
    """
    for index in range(len(lines) - 1, -1, -1):
        match = _EXCEPTION.match(lines[index].strip())
        if match and not match[1].startswith(_WRAPPERS):
            cause = lines[index].strip()[match[1].rfind(".") + 1 :]
            cause = " ".join([cause, *lines[index + 1 : index + 2]]) if cause.endswith(":") else cause
            begin = next((at for at in range(index, -1, -1) if lines[at].startswith(_BEGINNINGS)), index)
            return cause, [] if match[1].startswith("agent_rl.") else _above(lines, begin, index)
    return None, lines[-LAST_LINES:]


def _engine_failure(lines: list[str]) -> tuple[str, list[str]] | None:
    """Return why a process of SGLang has ended, and its traceback, or None if the log does not show it."""
    for index, line in enumerate(lines):
        if _ENGINES_EXCEPTION.search(line):
            for end in range(index + 1, len(lines)):
                if match := _EXCEPTION.match(lines[end].strip()):
                    return f"SGLang: {lines[end].strip()[match[1].rfind('.') + 1 :]}", _above(lines, index, end)
        if crash := _ENGINES_CRASH.search(line):
            return f"SGLang's process {crash[1]}: {_ended(int(crash[2]))}", []
    return None


def _dead_actor(lines: list[str]) -> tuple[str, list[str]] | None:
    """Describe the first process that Ray reports as dead or lost, or return None; no traceback is included."""
    match = _DEAD_ACTOR.search("\n".join(lines))
    if match is None:
        if not any("ActorUnavailableError" in line for line in lines):
            return None
        return "a process of the run no longer answers: it crashed, or it or its node was lost", []
    if match["node"]:
        return f"the node {match['ip']} stopped answering and is considered dead", []
    process = f"the {match['name']} process (pid {match['pid']}, on {match['ip']})"
    return f"{process} has died: it crashed, or was killed (out of memory?)", []


def _unless_full(cause: str, folders: Iterable[Path]) -> str:
    """Return the cause, or a message about the first folder whose disk, or the user's quota on it, is full."""
    for folder in folders:
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(ROOM))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return f"no space is left in {folder} ({cause}). Free some space, and run the command again"
    return cause


def _ended(status: int) -> str:
    """Return how a process with this exit status ended; the status is negative for a signal."""
    if status >= 0:
        return f"exit status {status}"
    return f"ended by {signal.Signals(-status).name}" + " (out of memory?)" * (status == -signal.SIGKILL)


def _above(lines: list[str], begin: int, end: int) -> list[str]:
    """Return the last lines of a traceback between its heading and its exception."""
    return lines[max(begin + 1, end - LAST_LINES) : end]


def bare(line: str) -> str:
    """Return the line without colors, and without the prefix that Ray or torch adds for another process."""
    return _PREFIX.sub("", _COLOUR.sub("", line)).rstrip()
