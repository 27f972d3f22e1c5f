"""Reads what a trainer writes: lines of its log, metrics, and why it failed.

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

__all__ = [
    "MESSAGE",
    "SHARE",
    "TOTAL",
    "bare",
    "command",
    "failure",
    "process_end",
    "step_line",
    "validations",
    "written",
]

MESSAGE = "agent_rl: "
"""What a line of the log begins with that the user is shown."""

WRONG = 2
"""Exit status of a trainer that refuses its configuration, or the user's code, before it starts."""
LAST_LINES = 15
"""Lines of the log that a failure shows."""
ROOM = 1 << 20
"""Bytes without which a folder counts as full: what did not fit has mostly been removed again."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX = re.compile(r"^(?:\([A-Za-z_]\w* [^)]*\) ?|\[rank\d+\]: ?)")
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception)): (.+)$")
_WRAPPERS = ("ray.exceptions.RayTaskError", "torch.distributed.elastic.")
"""Exceptions that tell of one in another process."""
_NO_ENGINE = re.compile("ActorDiedError|Failed to complete async request|Cannot connect to host")
"""What the trainer gets when the engine's server is gone, or another process of the run."""
_DEAD_ACTOR = re.compile(
    r"ActorDiedError: .*\n\s*class_name: (?P<name>\S+)\n\s*actor_id: .*\n\s*pid: (?P<pid>\d+)\n(\s*\w+: .*\n)*?"
    r"\s*ip: (?P<ip>\S+)(?P<node>\n\s*The actor died because its node has died)?"
)
_ENGINES_EXCEPTION = re.compile(r"\b\w+ hit an exception: Traceback")
_ENGINES_CRASH = re.compile(r"\bSubprocess (\w+) \(pid=\d+\) crashed with exit code (-?\d+)")
_BEGINNINGS = ("Traceback (most recent", "The above exception was", "During handling of", "Error executing job")
"""What stands above a traceback; hydra leaves the first of these out."""
TOTAL = re.compile(r"\bTotal training steps: (\d+)$")
"""In a line of verl's log."""
SHARE = "{:.0%}"
"""The form of a share of trajectories."""
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
"""Fields that are left out when they are zero."""
_VALIDATION = re.compile(r"^val-(?:core|aux)/(.+)/(acc|reward)/mean@\d+$")


def step_line(step: int, metrics: Mapping[str, Any], total: int | None = None) -> str:
    """A step in one line: reward, accuracy, tool calls, turns, length, seconds, and the validation if there was one."""
    found = [(key, form, metrics.get(key)) for key, form in _FIELDS.items()]
    parts = [written(form, value) for key, form, value in found if value or (value is not None and key not in _QUIET)]
    for source, values in validations(metrics).items():
        forms = {"reward": "reward {:+.3f}", "acc": f"accuracy {SHARE}"}
        shown = [written(form, values[name]) for name, form in forms.items() if name in values]
        parts.append(f"validation on {named(source)}: {', '.join(shown)}")
    return f"step {step}{f'/{total}' if total else ''}: {', '.join(parts) or 'no metrics'}"


def written(form: str, value: float) -> str:
    """A number in its form; a share outside of 0 to 1, of a scorer with other bounds, as a number."""
    return (form if 0 <= value <= 1 else form.replace(SHARE, "{:.3g}")).format(value)


def command(*words: str) -> str:
    """A command line that works in the user's shell, also where the environment is not activated."""
    program = "agent-rl"
    if shutil.which(program) is None:
        program = os.path.relpath(Path(sys.executable).parent / program)
    return shlex.join([program, *words])


def validations(metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Reward and accuracy (`reward`, `acc`) of a validation, by data source; empty where there was none."""
    sources: dict[str, dict[str, float]] = {}
    for key, value in metrics.items():
        if found := _VALIDATION.match(key):
            sources.setdefault(found[1], {})[found[2]] = value
    return sources


def failure(log: Path, start: int, status: int, folders: Iterable[Path] = ()) -> str:
    """Why the trainer failed, the last useful lines of its output, and where the log is.

    Args:
        log: of all output.
        start: bytes of the log before this start of the trainer.
        status: exit status of the trainer, negative for a signal.
        folders: in which it writes; one without space is the cause, whatever the exception is
            (torch.save: "unexpected pos 13696 vs 13588").
    """
    lines = _lines(log, start)
    if status == WRONG and (refused := next((line for line in reversed(lines) if line.startswith("error: ")), None)):
        return f"{named(refused.removeprefix('error: '))}\nThe whole output: {log}"
    cause, shown = _cause(lines)
    if cause is not None and _NO_ENGINE.search(cause):
        cause, shown = _engines_end(lines) or _actors_end(lines) or (cause, shown)
    excerpt = "".join(f"\n  | {named(line)}" for line in shown)
    cause = _unless_full(named(cause or _ended(status)), folders)
    return f"the trainer failed: {cause}{excerpt}\nThe whole output: {log}"


def process_end(log: Path, status: int, start: int = 0) -> str:
    """Why a process of verl or SGLang has ended, or has not started.

    Args:
        log: of its output.
        status: its exit status, negative for a signal.
        start: bytes of the log before this start of the process.
    """
    lines = _lines(log, start)
    found = _engines_end(lines)
    cause = found[0] if found else _ended(status) if status < 0 else _cause(lines)[0] or (lines or ["no output"])[-1]
    return _unless_full(named(cause), [log.parent])


def _lines(log: Path, start: int) -> list[str]:
    with open(log, "rb") as file:
        file.seek(start)
        lines = [bare(line) for line in file.read().decode(errors="replace").splitlines()]
    return [line for line in lines if line.strip() and "HYDRA_FULL_ERROR" not in line]


def _cause(lines: list[str]) -> tuple[str | None, list[str]]:
    """The last exception (not a wrapper: Ray's repeats the remote traceback) and its traceback, or the last lines.

    The message of one of our own errors says enough.
    """
    for index in range(len(lines) - 1, -1, -1):
        found = _EXCEPTION.match(lines[index].strip())
        if found and not found[1].startswith(_WRAPPERS):
            message = " ".join([found[2], *lines[index + 1 : index + 2]]) if found[2].endswith(":") else found[2]
            cause = f"{found[1].rsplit('.', 1)[-1]}: {message}"
            begin = next((at for at in range(index, -1, -1) if lines[at].startswith(_BEGINNINGS)), index)
            return cause, [] if found[1].startswith("agent_rl.") else _above(lines, begin, index)
    return None, lines[-LAST_LINES:]


def _engines_end(lines: list[str]) -> tuple[str, list[str]] | None:
    """Why a process of SGLang has ended, and its traceback; None where none says so."""
    for index, line in enumerate(lines):
        if _ENGINES_EXCEPTION.search(line):
            for end in range(index + 1, len(lines)):
                if found := _EXCEPTION.match(lines[end].strip()):
                    return f"SGLang: {found[1].rsplit('.', 1)[-1]}: {found[2]}", _above(lines, index, end)
        if crash := _ENGINES_CRASH.search(line):
            return f"SGLang's process {crash[1]}: {_ended(int(crash[2]))}", []
    return None


def _actors_end(lines: list[str]) -> tuple[str, list[str]] | None:
    """Which process of the run was the first to die, without the traceback of who waited; None where Ray names none."""
    found = _DEAD_ACTOR.search("\n".join(lines))
    if found is None:
        return None
    if found["node"]:
        return f"the node {found['ip']} does not answer any more, and was taken for dead", []
    process = f"the process of {found['name']} (pid {found['pid']}, on {found['ip']})"
    return f"{process} has died: it crashed, or was killed (is memory short?)", []


def _unless_full(cause: str, folders: Iterable[Path]) -> str:
    """The cause, or the folder behind it, in which the disk or the user's quota has no room for a file."""
    for folder in folders:
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(ROOM))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return f"no space is left in {folder} ({cause}). Make room, and repeat the command"
    return cause


def _ended(status: int) -> str:
    """How a process ended, by its exit status, which is negative for a signal."""
    if status >= 0:
        return f"exit status {status}"
    return f"{signal.Signals(-status).name} ended it" + " (is memory short?)" * (status == -signal.SIGKILL)


def _above(lines: list[str], begin: int, end: int) -> list[str]:
    """The last lines of a traceback between its heading and its exception."""
    return lines[max(begin + 1, end - LAST_LINES) : end]


def bare(line: str) -> str:
    """The line without colours, and without what Ray or torch puts before the line of another process."""
    return _PREFIX.sub("", _COLOUR.sub("", line)).rstrip()
