"""`hooks` lists all registrations with verl and patches of verl 0.9.1; small patches are in this module.

Each function patches one module right after its import, and the docstring states the reason. For each patch, a test
shows that verl's original code fails. `check_version` rejects any other version of verl.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from agent_rl.cpu import switch
from agent_rl.errors import ConfigError
from agent_rl.settings.old_keys import RUN, argument_keys, change_arguments, change_config, tell
from agent_rl.settings.secrets import Redactor
from agent_rl.verl_adapter.stages import announce

VERL_VERSION = "0.9.1"

Hook = tuple[str, str | Callable[[ModuleType], None]]
"""A module's name, and the function to call with the module after its import; `file:function` is only imported then."""
HOOKS = {
    "verl.experimental.agent_loop": "patches:moved_names",
    "verl.experimental.agent_loop.agent_loop": "loops:install",
    "verl.experimental.reward_loop.reward_manager": "patches:reward_managers",
    "verl.tools.tool_registry": "verl_tools:tool_loading",
    "verl.trainer.constants_ppo": "patches:environment",
    "verl.trainer.ppo.core_algos": "algorithms.registration:register",
    "verl.trainer.ppo.v1": "patches:trainers",
    "verl.trainer.ppo.v1.agent_loop_tq": "trajectory_puts:together",
    "verl.utils.config": "early_checks:early_checks",
    "verl.utils.device": "patches:old_keys",
    "verl.utils.fs": "patches:checkpoint_folders",
    "verl.utils.profiler.performance": "patches:timers",
    "verl.utils.torch_functional": "no_flash_attention:token_log_probs",
    "verl.utils.tracking": "sinks:tracking",
    "verl.workers.engine_workers": "updates:policy_loss",
}
HOOKS_ON_GPUS = {
    "transformers.modeling_flash_attention_utils": "no_flash_attention:packed_attention",
    "verl.models.transformers.qwen2_vl": "no_flash_attention:multimodal_attention",
}


def hooks() -> list[Hook]:
    """Return the hooks for agent loops, reward manager, tools, estimators, patches and, if selected, CPU support."""
    functions = HOOKS if switch.is_selected() else HOOKS | HOOKS_ON_GPUS
    own: list[Hook] = [(module, f"{__package__}.{function}") for module, function in functions.items()]
    if switch.is_selected():
        from agent_rl.cpu import patches as cpu

        own += cpu.HOOKS
    return own


def check_version(version: str) -> None:
    """Reject a version of verl for which the patches were not written.

    Raises:
        ConfigError: the installed version is not the expected version; the error names both.
    """
    if version != VERL_VERSION:
        raise ConfigError(
            "verl", f"version {version} is installed, but agent_rl requires {VERL_VERSION}", "Install agent-rl[train]"
        )


def environment(module: ModuleType) -> None:
    """`verl.trainer.constants_ppo`: pass the run's command and the agent loops of the user's script to the workers."""
    from agent_rl.verl_adapter import ending, loops

    loops.export_to_workers(module)
    variables = module.PPO_RAY_RUNTIME_ENV["env_vars"]
    variables.setdefault(ending.COMMAND, Redactor(os.environ)(shlex.join(sys.orig_argv)))


def reward_managers(module: ModuleType) -> None:
    """`verl.experimental.reward_loop.reward_manager`: register the `trajectory` manager."""
    from agent_rl.verl_adapter import manager  # noqa: F401 - the manager registers itself


def trainers(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1`: register agent_rl's trainer under verl's names, and replace names that the trainer uses.

    - `RewardLoopManager`: verl has no key to replace this class or its workers.
    - `compute_rollout_correction_and_add_to_batch`: fails in verl on a batch without log-probs or trained tokens.
    - TransferQueue's `kv_batch_get`: see `empty_batches`.
    """
    from agent_rl.verl_adapter import trainer  # noqa: F401 - the trainer registers itself
    from agent_rl.verl_adapter.reward_loop import AgentRewardLoopManager

    trainer_base: Any = module.trainer_base
    trainer_base.RewardLoopManager = AgentRewardLoopManager
    correct = trainer_base.compute_rollout_correction_and_add_to_batch

    @functools.wraps(correct)
    def correct_if_there(batch: Any, *args: Any, **kwargs: Any) -> Any:
        has_tokens = "old_log_probs" in batch.batch and bool(batch.batch["response_mask"].any())
        return correct(batch, *args, **kwargs) if has_tokens else (batch, {})

    trainer_base.compute_rollout_correction_and_add_to_batch = correct_if_there
    empty_batches(trainer_base.tq)


def empty_batches(queue: Any) -> None:
    """TransferQueue: let `kv_batch_get` accept an empty list of keys, on which it would otherwise fail.

    A validation passes an empty list after a batch in which every trajectory failed, such as a single row with
    `data.val_batch_size=1`.
    """
    get = queue.kv_batch_get

    @functools.wraps(get)
    def get_if_any(keys: Any, partition_id: str, select_fields: Any = None) -> Any:
        if keys:
            return get(keys=keys, partition_id=partition_id, select_fields=select_fields)
        return {name: _Nothing() for name in select_fields}

    queue.kv_batch_get = get_if_any


class _Nothing(list[Any]):
    """A column without rows, with the tensor methods that verl calls."""

    def to_padded_tensor(self, **_: Any) -> _Nothing:
        return self

    sum, tolist = to_padded_tensor, list.copy


def checkpoint_folders(module: ModuleType) -> None:
    """`verl.utils.fs`: create the folders of a checkpoint without a lock, whose file verl would leave in TMPDIR.

    Several processes can safely create the same folder at the same time without a lock.
    """

    def local_mkdir_safe(path: str) -> str:
        os.makedirs(path, exist_ok=True)
        return os.path.abspath(path)

    module.local_mkdir_safe = local_mkdir_safe  # type: ignore[attr-defined]


def timers(module: ModuleType) -> None:
    """`verl.utils.profiler.performance`: use timers without names.

    codetiming keeps every duration of a timer with a name: a number for each session, and for each part of a step. verl
    never reads these numbers again.
    """
    timer = module.Timer
    module.Timer = lambda name, **options: timer(**options)  # type: ignore[attr-defined]


def change_command_line() -> None:
    """Change old keys in the arguments of `python -m verl.trainer.main_ppo`, which hydra has not yet read.

    Under `agent-rl train`, the launcher has already changed old keys. If a key is rejected, the process exits, because
    verl would only log an exception that a plugin raises.
    """
    is_verls = sys.argv[0] == "-m" and any(each.endswith("verl.trainer.main_ppo") for each in sys.orig_argv)
    if is_verls and RUN not in os.environ:
        try:
            sys.argv[1:], notes = change_arguments(sys.argv[1:])
        except ConfigError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
        tell(notes)


def old_keys(module: ModuleType) -> None:
    """`verl.utils.device`: change old keys from YAML files when verl's `main` first uses its configuration."""
    original = module.auto_set_device

    @functools.wraps(original)
    def auto_set_device(config: Any) -> None:
        if config and "actor_rollout_ref" in config:
            from agent_rl.verl_adapter.early_checks import as_one_line  # this import takes a while

            with as_one_line():
                tell(change_config(config, argument_keys(sys.argv[1:])))
            announce("Ray")  # `main` starts Ray once it has checked the configuration
        original(config)

    module.auto_set_device = auto_set_device  # type: ignore[attr-defined]


def moved_names(module: ModuleType) -> None:
    """`verl.experimental.agent_loop`: add a name that scripts for older releases import from this module."""
    from agent_rl.agents.registry import register_agent_loop

    module.register_agent_loop = register_agent_loop  # type: ignore[attr-defined]
