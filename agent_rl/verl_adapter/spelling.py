"""Old spellings of keys in the trainer's process.

Words of the command line are changed once, where they come in. Under `agent-rl train` the launcher has done it; verl's
own command, `python -m verl.trainer.main_ppo old.key=...`, loads our plugin before hydra reads the words. All other old
keys that verl takes are changed at the first thing that its `main` does with its configuration.
`agent_rl.settings.old_keys` has the table.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.settings.old_keys import RUN, argument_keys, change_arguments, change_config, tell
from agent_rl.verl_adapter.stages import announce

__all__ = ["change_command_line", "change_composed"]

TRAINER = "verl.trainer.main_ppo"


def change_command_line() -> None:
    """Change `sys.argv` of `python -m verl.trainer.main_ppo`, for which Python imports verl first."""
    is_verls = sys.argv[0] == "-m" and any(each.endswith(TRAINER) for each in sys.orig_argv)
    if is_verls and RUN not in os.environ:
        with _exit_if_refused():
            sys.argv[1:], notes = change_arguments(sys.argv[1:])
            tell(notes)


def change_composed(module: ModuleType) -> None:
    """`verl.utils.device`: change the keys that verl has composed, where verl's `main` first uses the configuration."""
    original = module.auto_set_device

    @functools.wraps(original)
    def auto_set_device(config: Any) -> None:
        if config and "actor_rollout_ref" in config:
            with _exit_if_refused():
                tell(change_config(config, argument_keys(sys.argv[1:])))
            announce("Ray")  # which `main` starts once the configuration is checked
        original(config)

    module.auto_set_device = auto_set_device  # type: ignore[attr-defined]


@contextmanager
def _exit_if_refused() -> Iterator[None]:
    """Exit with status 2 for a refused key: verl only logs what a plugin raises, and hydra prints a traceback."""
    try:
        yield
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
