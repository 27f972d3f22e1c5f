"""Old spellings of keys in the trainer's process.

Words of the command line are changed once, where they come in. Under `agent-rl train` the launcher has done it; verl's
own command, `python -m verl.trainer.main_ppo old.key=...`, loads our plugin before hydra reads the words, and a script
of the user calls verl's `main`. Keys of YAML files are changed at the first thing that `main` does with its
configuration. `agent_rl.settings.old_keys` has the table.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.settings.old_keys import RUN, argument_keys, change_arguments, change_config, tell
from agent_rl.verl_adapter.stages import announce

__all__ = ["change_command_line", "change_composed", "change_main"]

TRAINER = "verl.trainer.main_ppo"


def change_command_line() -> None:
    """Change `sys.argv` of `python -m verl.trainer.main_ppo`, for which Python imports verl first."""
    if sys.argv[0] == "-m" and any(each.endswith(TRAINER) for each in sys.orig_argv):
        _or_exit(_change_argv)


def change_main(module: ModuleType) -> None:
    """`verl.trainer.main_ppo`, imported by a script: change the command line when it calls `main`."""
    original = module.main

    @functools.wraps(original)
    def main(*args: Any, **kwargs: Any) -> Any:
        _or_exit(_change_argv)
        return original(*args, **kwargs)

    module.main = main  # type: ignore[attr-defined]


def change_composed(module: ModuleType) -> None:
    """`verl.utils.device`: change the keys that YAML files gave, where verl's `main` first uses the configuration."""
    original = module.auto_set_device

    @functools.wraps(original)
    def auto_set_device(config: Any) -> None:
        if config and "actor_rollout_ref" in config:
            _or_exit(lambda: tell(change_config(config, argument_keys(sys.argv[1:]))))
            announce("Ray")  # which `main` starts once the configuration is checked
        original(config)

    module.auto_set_device = auto_set_device  # type: ignore[attr-defined]


def _change_argv() -> None:
    if RUN in os.environ:
        return
    sys.argv[1:], notes = change_arguments(sys.argv[1:])
    tell(notes)


def _or_exit(change: Callable[[], None]) -> None:
    """Exit with status 2 for a refused key: verl only logs what a plugin raises, and hydra prints a traceback."""
    try:
        change()
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
