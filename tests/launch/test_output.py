import errno
import io
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

from agent_rl.launch.output import failure, process_end, step_line
from agent_rl.work.text import named, one_line

STEP = {
    "critic/score/mean": 0.4156,
    "agent/acc": 0.453,
    "agent/tool_calls": 1.336,
    "agent/malformed_rate": 0.082,
    "agent/unscored": 0,
    "response_length/mean": 104.5,
    "timing_s/step": 4.125,
    "actor/lr": 3e-4,
}


def log(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "train.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_a_step_is_one_line() -> None:
    line = step_line(3, STEP, 290)
    assert line == "step 3/290: reward +0.416, accuracy 45%, 1.3 tool calls, 8% malformed, 104 tokens, 4.1 s"
    metrics = {"val-core/openai/gsm8k/acc/mean@1": 0.5, "val-aux/openai/gsm8k/reward/mean@1": 0.25, "val-aux/x": 1}
    assert step_line(0, metrics) == "step 0: validation on openai/gsm8k: reward +0.250, accuracy 50%"


def test_a_failure_shows_the_traceback_without_the_wrapper_that_repeats_it(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        "ValueError: of an earlier start",
        "(Worker pid=7) Traceback (most recent call last):",
        '(Worker pid=7)   File "mine.py", line 3, in score',
        '(Worker pid=7)     raise ValueError("no")',
        "(Worker pid=7) ValueError: no\x1b[2J",
        "ray.exceptions.RayTaskError(ValueError): repeated",
    )
    text = failure(path, len("ValueError: of an earlier start\n"), 1)
    assert text.splitlines() == [
        "the trainer failed: ValueError: no\u27e8U+001B\u27e9[2J",
        '  |   File "mine.py", line 3, in score',
        '  |     raise ValueError("no")',
        f"The whole output: {path}",
    ]


def test_an_exception_without_a_message_is_the_cause(tmp_path: Path) -> None:
    lines = ("ImportError: an optional package", "Traceback (most recent call last):", "  assert x", "AssertionError")
    said = failure(log(tmp_path, *lines), 0, 1)
    assert said.splitlines()[:2] == ["the trainer failed: AssertionError", "  |   assert x"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_whatever_the_exception_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    class Full(io.BytesIO):
        def write(self, *_: object) -> NoReturn:
            raise OSError(number, "no space")

    path = log(tmp_path, "Traceback (most recent call last):", "  save()", "RuntimeError: unexpected pos 64 vs 0")
    assert failure(path, 0, 1, [tmp_path, Path("/nowhere")]).startswith("the trainer failed: RuntimeError: unexp")
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: Full() if dir == tmp_path else io.BytesIO())
    assert failure(path, 0, 1, [Path("/nowhere"), tmp_path]).startswith(
        f"the trainer failed: no space is left in {tmp_path} (RuntimeError: unexpected pos 64 vs 0). Free some space"
    )


DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."


def test_an_engine_that_failed_is_the_cause(tmp_path: Path) -> None:
    engine = [
        "(SGLangHttpServer pid=7) [2026-11-23 17:24] Scheduler hit an exception: Traceback (most recent call last):",
        '(SGLangHttpServer pid=7)   File "scheduler.py", line 3, in run',
        "(SGLangHttpServer pid=7) torch.OutOfMemoryError: CUDA out of memory",
    ]
    text = failure(log(tmp_path, *engine, "Traceback (most recent call last):", "  await it", DIED), 0, 1)
    assert text.splitlines()[:2] == [
        "the trainer failed: SGLang: OutOfMemoryError: CUDA out of memory",
        '  |   File "scheduler.py", line 3, in run',
    ]
    assert "OutOfMemoryError" not in failure(log(tmp_path, *engine, "ValueError: a bug"), 0, 1)


def test_an_engine_that_was_killed_is_the_cause(tmp_path: Path) -> None:
    crash = "[2026-11-23 17:22:51] Subprocess scheduler_0 (pid=20130) crashed with exit code -9. Triggering SIGQUIT"
    text = failure(log(tmp_path, crash, f"UnscoredError: 128 failed, the last with: {DIED}"), 0, 1)
    assert text.startswith("the trainer failed: SGLang's process scheduler_0: ended by SIGKILL (out of memory?)\n")
    assert "died unexpectedly" in failure(log(tmp_path, DIED), 0, 1)


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        ("The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR",
         "the WorkerDict process (pid 2956, on 192.0.2.2) has died: it crashed, or was killed (out of memory?)"),
        ("The actor died because its node has died. Node Id: 7504",
         "the node 192.0.2.2 stopped answering and is considered dead"),
    ],
)  # fmt: skip
def test_a_process_that_was_killed_and_a_node_that_is_gone_are_named(tmp_path: Path, last: str, cause: str) -> None:
    named = ["class_name: WorkerDict", "actor_id: 0c33", "pid: 2956", "name: x_0", "namespace: 435", "ip: 192.0.2.2"]
    lines = [*(f"(TaskRunner pid=3) \t{each}" for each in named), f"(TaskRunner pid=3) {last}"]
    text = failure(log(tmp_path, "Traceback (most recent call last):", "  get()", DIED, *lines), 0, 1)
    assert text == f"the trainer failed: {cause}\nThe whole output: {tmp_path / 'train.log'}"


def test_a_process_that_ray_does_not_name_no_longer_answers(tmp_path: Path) -> None:
    unavailable = "ray.exceptions.ActorUnavailableError: The actor 84243e is unavailable: RPC error: Socket closed"
    text = failure(log(tmp_path, "Traceback (most recent call last):", "  get()", unavailable), 0, 1)
    assert text.startswith("the trainer failed: a process of the run no longer answers: it crashed, or it or its node")


CRASH = "[2026-11-24 02:21:00] Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT"
OPTION = "launch_server.py: error: argument --tp: invalid int value: 'x'"

ELASTIC = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train FAILED"


@pytest.mark.parametrize(
    ("lines", "status", "end"),
    [
        ([], -9, "ended by SIGKILL (out of memory?)"),
        ([], 3, "no output"),
        ([CRASH, "SIGQUIT received."], -3, "SGLang's process scheduler_0: ended by SIGKILL (out of memory?)"),
        (["Traceback (most recent call last):", "ValueError: no", "resource_tracker: a leak"], 1, "ValueError: no"),
        (["usage: launch_server.py", OPTION], 2, OPTION),
        (
            ["Exception: The node timed out during startup.", "at the end"],
            1,
            "Exception: The node timed out during startup.",
        ),
        (["[rank1]: ValueError: no", ELASTIC, "  time : 2026-11-24"], 1, "ValueError: no"),
        (["ImportError: of an optional package", "  assert x", "asyncio.TimeoutError"], 1, "TimeoutError"),
    ],
)
def test_the_end_of_a_process_has_a_cause(tmp_path: Path, lines: list[str], status: int, end: str) -> None:
    path = log(tmp_path, *lines)
    assert process_end(path, status) == end
    before = path.stat().st_size
    path.write_text(path.read_text() + "ValueError: of this start\n")
    assert process_end(path, 1, before) == "ValueError: of this start"


def test_a_failure_inside_hydra_has_the_cause_of_its_second_line_and_the_last_traceback(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "Error executing job with overrides: []\n"
        '  File "first.py", line 1, in <module>\n'
        "OSError: gone\n"
        "The above exception was the direct cause of the following exception:\n"
        '  File "second.py", line 2, in <module>\n'
        "hydra.errors.InstantiationException: Error in call to target 'Model':\n"
        "OSError('gone')\n"
        "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    )
    said = failure(log, 0, 1)
    assert "InstantiationException: Error in call to target 'Model': OSError('gone')" in said
    assert "second.py" in said
    assert "first.py" not in said


def test_what_a_terminal_obeys_is_named() -> None:
    text = "a\x1b[2J\x07\x9b1m\r\u202e\ud800\u2028\tb\nc"
    shown = named(text)
    assert not set(shown) & set("\x1b\x07\x9b\r\u202e\ud800\u2028")
    assert shown.startswith("a\u27e8U+001B\u27e9[2J")
    assert shown.endswith("\tb\nc")
    shown.encode()
    assert one_line("a\r\n  b\x1b", 10) == "a b\u27e8U+001B\u27e9"
    assert one_line("x" * 10_000_000, 5) == "xxxxx\u2026"
