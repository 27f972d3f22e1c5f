"""Turns each change of speed in `agent_rl/cpu` into one that is off while a file of its name exists.

`test_ablation` puts this on the path of a run as `sitecustomize`, which every Python process imports.
"""

import functools
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import wrapt

OFF = Path(os.environ["ABLATION_FOLDER"])


def either(name, changed, original):
    """The change, or what was there before while the change is off."""

    @functools.wraps(changed)
    def call(*args, **kwargs):
        return (original if (OFF / name).exists() else changed)(*args, **kwargs)

    return call


def switch(patches, name, *places):
    """Make the patch `name` of a module of patches keep what it replaces at these places of verl's module."""
    patch = getattr(patches, name)

    @functools.wraps(patch)
    def apply(module):
        owners = [functools.reduce(getattr, place.split(".")[:-1], module) for place in places]
        names = [place.rpartition(".")[2] for place in places]
        originals = [getattr(owner, each) for owner, each in zip(owners, names, strict=True)]
        patch(module)
        for owner, each, original in zip(owners, names, originals, strict=True):
            setattr(owner, each, either(name, getattr(owner, each), original))

    setattr(patches, name, apply)


@wrapt.when_imported("agent_rl.verl_adapter.no_flash_attention")
def switch_log_probs(no_flash_attention):
    switch(no_flash_attention, "token_log_probs", "logprobs_from_logits_v2")


@wrapt.when_imported("agent_rl.cpu.speed")
def switch_speed(speed):
    switch(speed, "fetched_tensors", "_async_meta_to_realdata")
    construct = speed.loop_construction

    @functools.wraps(construct)
    def loop_construction(module):
        original = module.hydra.utils.instantiate
        construct(module)
        changed = module.hydra.utils.instantiate
        instantiate = either("loop_construction", changed, original)
        module.hydra = SimpleNamespace(utils=SimpleNamespace(instantiate=instantiate))

    speed.loop_construction = loop_construction


@wrapt.when_imported("agent_rl.verl_adapter.trajectory_puts")
def switch_puts(trajectory_puts):
    together = trajectory_puts.together

    @functools.wraps(together)
    def switched(module):
        queue = module.tq
        together(module)
        kind = type(module.tq)
        batch, single = kind.async_kv_batch_put, kind.async_kv_put

        async def put_batch(self, keys, fields, tags, partition_id):
            if (OFF / "trajectory_puts").exists():
                return await queue.async_kv_batch_put(keys=keys, fields=fields, tags=tags, partition_id=partition_id)
            return await batch(self, keys, fields, tags, partition_id)

        async def put_single(self, key, partition_id, tag):
            if (OFF / "trajectory_puts").exists():
                return await queue.async_kv_put(key=key, partition_id=partition_id, tag=tag)
            return await single(self, key, partition_id, tag)

        kind.async_kv_batch_put, kind.async_kv_put = put_batch, put_single

    trajectory_puts.together = switched


@wrapt.when_imported("verl.trainer.ppo.v1.replay_buffer")
def switch_polling(module):
    def interval(self):
        speed = sys.modules["agent_rl.cpu.speed"]
        return 2.0 if (OFF / "replay_buffer_polling").exists() else speed.POLL_INTERVAL_S

    module.ReplayBuffer.poll_interval = property(interval, lambda self, value: None)


def original(method, *args, **kwargs):
    """SGLang's own, instead of a hook."""
    return method(*args, **kwargs)


@wrapt.when_imported("agent_rl.cpu.attention")
def switch_attention(attention):
    attention.decode = either("decode", attention.decode, original)


@wrapt.when_imported("agent_rl.cpu.sampling")
def switch_sampling(sampling):
    sampling.sample = either("sample", sampling.sample, original)


@wrapt.when_imported("agent_rl.cpu.engine")
def switch_engine(engine):
    mixin = engine._OnCPU

    def original(self, *args, **kwargs):
        return super(mixin, self).forward_backward_batch(*args, **kwargs)

    mixin.forward_backward_batch = either("sorted_micro_batches", mixin.forward_backward_batch, original)
