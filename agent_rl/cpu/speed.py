"""Patches verl 0.9.1 to make small runs on a CPU faster, where verl has no setting for this.

These patches do not matter on a GPU with a large model. Each patch has a test that fails when the patch is no longer
needed.
"""

from __future__ import annotations

import functools
from types import ModuleType, SimpleNamespace
from typing import Any

from hydra.errors import InstantiationException

POLL_INTERVAL_S = 0.05

IMAGES = "multi_modal_inputs"
"""verl's field for model inputs that are not tokens: one dict per row, which is empty if the row has no images."""


def loop_construction(module: ModuleType) -> None:
    """`verl.experimental.agent_loop.agent_loop`: create an agent loop by calling its class.

    verl lets hydra create a loop for each trajectory. Copying and merging a configuration with a single key takes hydra
    nine tenths of a loop's creation time. Hydra still creates a loop whose registration contains more than a class.
    """
    original = module.hydra

    def instantiate(config: Any, **kwargs: Any) -> Any:
        if set(config) != {"_target_"}:
            return original.utils.instantiate(config=config, **kwargs)
        try:
            return original.utils.get_class(config["_target_"])(**kwargs)
        except Exception as error:  # the user's class may raise any error, but verl expects an error from hydra
            raise InstantiationException(f"{config['_target_']} cannot be created: {error!r}") from error

    module.hydra = SimpleNamespace(utils=SimpleNamespace(instantiate=instantiate))  # type: ignore[attr-defined]


def replay_buffer_polling(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.replay_buffer`: poll for finished trajectories more often than every two seconds.

    The interval is a constructor argument for which verl has no configuration key; on a laptop, where a step takes one
    or two seconds, verl's value would double the step's time.
    """
    original = module.ReplayBuffer.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("poll_interval", POLL_INTERVAL_S)
        original(self, *args, **kwargs)

    module.ReplayBuffer.__init__ = init


def fetched_tensors(module: ModuleType) -> None:
    """`verl.utils.transferqueue_utils`: send a training worker only a batch's tensors and `IMAGES`.

    verl sends the worker all stored fields of a trajectory: prompts as messages, ground truths, reward components.
    Decoding these fields, and copying them for each mini-batch, took a tenth of an update's time.
    """
    original = module._async_meta_to_realdata

    @functools.wraps(original)
    async def to_data(meta: Any) -> Any:
        if isinstance(meta, module.KVBatchMeta):
            meta = await module.async_kv_batch_meta2batch_meta(meta)
        schema = meta.field_schema.items()
        read = [name for name, field in schema if name == IMAGES or not field.get("is_non_tensor")]
        return await original(meta.select_fields(read))

    module._async_meta_to_realdata = to_data  # type: ignore[attr-defined]
