"""Keeps a run apart from what its metrics are sent to (`trainer.logger`: wandb, MLflow, SwanLab, TensorBoard, ...).

verl calls every logger within the training loop: one that raises ends the run, and one whose server does not answer
holds each step (MLflow for minutes). Here each lives in a daemon thread, with verl's own code for it. What it raises is
reported once, and so is that it does not keep up; the run continues. `console` and `file` stay in the loop: the
terminal follows them. Samples of a validation (`trainer.log_val_generations`) are written as conversations.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from agent_rl.trajectory.trace import segments

__all__ = ["FINISH_S", "Samples", "conversation", "tracking"]

DIRECT = ("console", "file")
MOST_WAITING = 64
"""Calls that wait for a sink; later ones are lost."""
FINISH_S = 60.0
"""Seconds that the end of a run waits for a sink."""


def tracking(module: ModuleType) -> None:
    """`verl.utils.tracking`: loggers in threads of their own; verl calls each of them within the training loop."""
    original: Any = module.Tracking

    class Tracking(original):
        """verl's `Tracking`, which no sink can stop or delay."""

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


class Samples:
    """Samples of a validation, as conversations, for sinks.

    Args:
        log: the method of verl's `ValidationGenerationsLogger`.
    """

    def __init__(self, log: Callable[..., None]) -> None:
        self._log = log

    def log(self, loggers: str | Sequence[str], samples: Sequence[Any], step: int) -> None:
        """Send them to each of these loggers, in its own thread."""
        for name in [loggers] if isinstance(loggers, str) else loggers:
            if sink := _sinks.get(name):
                shown = [_readable(sample, indented=name == "tensorboard") for sample in samples]
                work = functools.partial(self._log, [name], shown, step)
                sink.put(lambda _, work=work: work(), f"the samples of step {step}")  # type: ignore[misc]


def conversation(text: str, first: str) -> str:
    """A decoded conversation with its roles as headings; `first` is the role of what stands before the first one."""
    said = [f"[{role}]\n{words}" for role, words in segments(text, first) if words.strip()]
    return "\n\n".join(said) or f"[{first}]"


_sinks: dict[str, _Sink] = {}
"""Of the process's last `Tracking`, by the name of the backend."""
_reported: set[str] = set()


class _DirectSink:
    """One of verl's loggers in the training loop."""

    def __init__(self, name: str, logger: Any) -> None:
        self.name, self._logger = name, logger

    def log(self, data: dict[str, Any], step: int) -> None:
        _tried(self.name, f"failed in step {step}", functools.partial(self._logger.log, data=data, step=step))

    def finish(self) -> None:
        _tried(self.name, "failed at the end", self._logger.finish)


class _Sink:
    """One backend in a thread of its own.

    Args:
        name: of the backend.
        make: verl's `Tracking` with this backend only; is called in the thread.
    """

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name = name
        self._work: queue.SimpleQueue[tuple[Callable[[Any], None], str] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(make,), name=f"agent_rl-{name}", daemon=True)
        self._thread.start()

    def put(self, work: Callable[[Any], None], what: str) -> None:
        """Have it done, unless too much is waiting."""
        if self._work.qsize() < MOST_WAITING:
            self._work.put((work, what))
        else:
            _report(self.name, f"does not keep up: {what} and others are lost")

    def log(self, data: dict[str, Any], step: int) -> None:
        copied = dict(data)
        self.put(lambda tracking: tracking.log(data=copied, step=step), f"step {step}")

    def finish(self, exit_code: int = 0) -> None:
        """Wait for what was put."""
        self.put(lambda tracking: tracking.finish(exit_code), "the end")
        self._work.put(None)
        self._thread.join(FINISH_S)
        if self._thread.is_alive():
            _report(f"{self.name} at the end", f"has not answered for {FINISH_S:g} s: its last metrics are lost")

    def _run(self, make: Callable[[], Any]) -> None:
        tracking = _tried(self.name, "could not be started", make)
        while (job := self._work.get()) is not None:
            work, what = job
            if tracking is not None:
                _tried(self.name, f"failed at {what}", functools.partial(work, tracking))


def _tried(name: str, problem: str, call: Callable[[], Any]) -> Any:
    """What a call of a logger gives; None where it raises: the run continues."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - no network, no account, a full disk, or whatever it is
        _report(name, problem, error)
        return None


def _report(name: str, problem: str, error: Exception | None = None) -> None:
    """Say it once for each sink, on the terminal too."""
    if name not in _reported:
        _reported.add(name)
        why = f" ({type(error).__name__}: {' '.join(str(error).split())[:300]})" if error else ""
        print(f"agent_rl: the logger {name} {problem}{why}. Training continues; metrics.jsonl is complete", flush=True)


def _readable(sample: Sequence[Any], *, indented: bool) -> list[Any]:
    """Input, output and score of a sample; indented, Markdown shows the texts as they are."""
    asked, answered, *rest = sample
    texts = [conversation(str(asked), "user"), conversation(str(answered), "assistant")]
    if indented:
        texts = ["\n\n" + "\n".join(f"    {line}" for line in text.splitlines()) for text in texts]
    return [*texts, *rest]
