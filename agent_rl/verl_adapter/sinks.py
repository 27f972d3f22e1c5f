"""Runs each metrics logger in a separate thread (`trainer.logger`: wandb, MLflow, SwanLab, TensorBoard, ...).

verl calls every logger within the training loop, so a logger's error stops the run, and a server that does not answer
delays each step (MLflow by minutes). With this module, each logger runs verl's code in a daemon thread. An error, or a
logger that does not keep up, is reported once, and the run continues. `console` and `file` run within the loop, because
the terminal shows their output. Samples of a validation (`trainer.log_val_generations`) are written as conversations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from agent_rl.trajectory.trace import segments
from agent_rl.work.concurrency import OneThread

DIRECT = ("console", "file")
MOST_WAITING = 64
"""Maximum number of calls that may wait for a sink; further calls are dropped."""
FINISH_S = 60.0
"""Seconds to wait for a sink at the end of a run."""


def tracking(module: ModuleType) -> None:
    """`verl.utils.tracking`: run each logger in a separate thread, instead of within the training loop."""
    original: Any = module.Tracking

    class Tracking(original):
        """A version of verl's `Tracking` that no sink can stop or delay."""

        logger: dict[str, Any]

        def __init__(self, project_name: str, experiment_name: str, default_backend: Any, config: Any = None) -> None:
            names = [default_backend] if isinstance(default_backend, str) else list(default_backend)
            for name in names:
                assert name in self.supported_backend, f"{name} is not supported"
            super().__init__(project_name, experiment_name, [name for name in names if name in DIRECT], config)
            self.logger = {name: _DirectSink(name, logger) for name, logger in self.logger.items()}
            _sinks.clear()
            for name in dict.fromkeys(names):
                if name not in DIRECT:
                    make = functools.partial(original, project_name, experiment_name, [name], config)
                    self.logger[name] = _sinks[name] = _Sink(name, make)

    module.Tracking = Tracking  # type: ignore[attr-defined]


def log_samples(log: Callable[..., None], loggers: str | Sequence[str], samples: Sequence[Any], step: int) -> None:
    """Send the samples of a validation to each of these loggers as conversations, in a separate thread.

    Args:
        log: the method of verl's `ValidationGenerationsLogger` to which the other arguments are passed.
    """
    for name in [loggers] if isinstance(loggers, str) else loggers:
        if sink := _sinks.get(name):
            readable = [_readable(sample, indented=name == "tensorboard") for sample in samples]
            work = functools.partial(log, [name], readable, step)
            sink.put(lambda _, work=work: work(), f"the samples of step {step}")  # type: ignore[misc]


def conversation(text: str, first: str) -> str:
    """Return a decoded conversation with roles as headings; `first` is the role of text before the first heading."""
    parts = [f"[{role}]\n{words}" for role, words in segments(text, first) if words.strip()]
    return "\n\n".join(parts) or f"[{first}]"


_sinks: dict[str, _Sink] = {}
"""The sinks of the process's latest `Tracking`, by backend name."""
_reported: set[str] = set()


class _DirectSink:
    """A verl logger that runs in the training loop."""

    def __init__(self, name: str, logger: Any) -> None:
        self.name, self._logger = name, logger

    def log(self, data: dict[str, Any], step: int) -> None:
        _call_safely(self.name, f"failed in step {step}", functools.partial(self._logger.log, data=data, step=step))

    def finish(self) -> None:
        _call_safely(self.name, "failed at the end", self._logger.finish)


class _Sink:
    """A backend that runs in a separate thread.

    Args:
        name: the backend's name.
        make: creates verl's `Tracking` with this backend only; called in the thread.
    """

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name = name
        self._thread = OneThread(f"agent_rl-{name}")
        self._tracking = self._thread.submit(_call_safely, name, "could not be started", make)

    def put(self, work: Callable[[Any], None], what: str) -> None:
        """Queue a call, unless too many calls are waiting."""
        if self._thread.waiting < MOST_WAITING:
            self._thread.submit(self._run, work, what)
        else:
            _report(self.name, f"does not keep up: {what} and others are lost")

    def log(self, data: dict[str, Any], step: int) -> None:
        copied = dict(data)
        self.put(lambda tracking: tracking.log(data=copied, step=step), f"step {step}")

    def finish(self, exit_code: int = 0) -> None:
        """Wait for the queued calls."""
        self.put(lambda tracking: tracking.finish(exit_code), "the end")
        if not self._thread.close(FINISH_S):
            problem = f"did not answer for {FINISH_S:g} s at the end of the run, so its last metrics are lost"
            _report(self.name, problem, at_end=True)

    def _run(self, work: Callable[[Any], None], what: str) -> None:
        if (tracking := self._tracking.result()) is not None:
            _call_safely(self.name, f"failed at {what}", functools.partial(work, tracking))


def _call_safely(name: str, problem: str, call: Callable[[], Any]) -> Any:
    """Return the result of a logger's call, or None if it raises an exception, so that the run continues."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - a logger may fail for any reason, such as no network or a full disk
        _report(name, problem, error)
        return None


def _report(name: str, problem: str, error: Exception | None = None, *, at_end: bool = False) -> None:
    """Report only a sink's first problem and, at the end of the run, its failure to answer."""
    key = f"{name} at the end" if at_end else name
    if key not in _reported:
        _reported.add(key)
        why = f" ({type(error).__name__}: {' '.join(str(error).split())[:300]})" if error else ""
        print(f"agent_rl: the {name} logger {problem}{why}. Training continues; metrics.jsonl is complete", flush=True)


def _readable(sample: Sequence[Any], *, indented: bool) -> list[Any]:
    """Return a sample's input, output and score; if `indented`, Markdown shows input and output verbatim."""
    question, answer, *rest = sample
    texts = [conversation(str(question), "user"), conversation(str(answer), "assistant")]
    if indented:
        texts = ["\n\n" + "\n".join(f"    {line}" for line in text.splitlines()) for text in texts]
    return [*texts, *rest]
