"""Checks of a GPU node against the table of what the stack asks for, and what of it is in force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

from agent_rl.doctor.case import Case
from agent_rl.doctor.checks.memory import has_no_graphs
from agent_rl.doctor.stack import ATTENTION, STACK
from agent_rl.preflight.check import Finding, Needs, check, ok, problem, warning
from agent_rl.verl_adapter.one_update import needs_pass


@check("machine", needs=Needs.MACHINE)
def node(case: Case) -> Iterator[Finding]:
    """The node has what torch, SGLang and verl ask for (`doctor.stack`)."""
    if case.on_cpu or not case.gpus:
        return
    for row in STACK:
        if not row.applies(case):
            continue
        found = row.found(case)
        if row.fits(case):
            yield ok(found, row.subject)
        else:
            text = f"{found}; wanted: {row.wanted}. Otherwise {row.otherwise}"
            yield replace(problem(text, row.remedy, row.subject), status=row.severity)


@check("configuration", "attention and log-probs")
def kernels(case: Case) -> Finding | None:
    """Says which kernels compute attention and log-probs."""
    if case.on_cpu or not case.gpus:
        return None
    version = case.machine.version("flash-attn")
    chosen = str(case.get(ATTENTION, "flash_attention_2"))
    attention = chosen if version or chosen != "flash_attention_2" else "flash_attention_2, by torch's kernel"
    fused = bool(case.get("actor_rollout_ref.model.use_fused_kernels"))
    log_probs = "verl's fused kernels" if fused else f"flash-attn {version}" if version else "in chunks of 1,024 tokens"
    return ok(f"attention: {attention}; log-probs: {log_probs}")


@check("configuration", "engine's batches")
def engine_batches(case: Case) -> Finding | None:
    """An engine runs the trajectories of a step at once, and has CUDA graphs for as many."""
    if case.on_cpu:
        return None
    rollout = "actor_rollout_ref.rollout"
    group = case.number(f"{rollout}.tensor_model_parallel_size", 1) * case.number(f"{rollout}.data_parallel_size", 1)
    engines = max(1, case.engine_world // max(1, group))
    trajectories = -(-case.number("data.train_batch_size", 1) * case.number(f"{rollout}.n", 1) // engines)
    most = case.number(f"{rollout}.max_num_seqs", 256)
    sglang = case.get(f"{rollout}.engine_kwargs.sglang", {})
    eager = has_no_graphs(case)
    graphs = "none" if eager else f"up to {sglang.get('cuda_graph_max_bs', 'what SGLang takes for the GPU')}"
    text = f"{trajectories} trajectories for each engine, {min(most, trajectories)} at once, CUDA graphs: {graphs}"
    if sglang.get("disable_radix_cache"):
        return warning(f"{text}; each turn reads its whole history again", "Remove disable_radix_cache")
    if sglang.get("chunked_prefill_size") == -1:
        return warning(f"{text}; a long prompt stops all others", "Remove chunked_prefill_size=-1")
    if eager:
        return warning(text, f"Remove {rollout}.enforce_eager and disable_cuda_graph")
    return warning(text, f"Raise {rollout}.max_num_seqs") if trajectories > 2 * most else ok(text)


@check("configuration", "log-probs before the update")
def log_prob_pass(case: Case) -> Finding | None:
    """Says how often the pass runs that computes log-probs before the update, and why."""
    if case.config is None or case.get("actor_rollout_ref.actor.ppo_mini_batch_size") is None:
        return None
    mode = case.get("trainer.v1.trainer_mode", "sync")
    sync_step = case.number(f"trainer.v1.{mode}.parameter_sync_step", 1)
    reason = needs_pass(SimpleNamespace(config=case.config, parameter_sync_step=sync_step))
    every = case.settings.run.log_probs_every
    return ok(f"in each step: {reason}" if reason else f"every {every} steps: a batch is used for one update")
