"""Checks of a run that trains a judge: its prompts, as they are asked, and the truths of its rows."""

from __future__ import annotations

from agent_rl.doctor.case import Case
from agent_rl.doctor.checks.chat_template import load_template
from agent_rl.doctor.checks.data import PROMPT_TOKENS, SAMPLE
from agent_rl.preflight.check import Finding, Needs, check, ok, problem, skipped, warning


@check("data", "questions to the judge", Needs.VERL)
def questions(case: Case) -> Finding | None:
    """Every row has a truth, thoughts are asked for once, and the prompts fit into `data.max_prompt_length`."""
    if case.has_rows_of_ours or case.config is None:
        return None
    from agent_rl.verl_adapter.judge_data_sets import asked_lengths

    if case.model.folder is None or not case.rows:
        return skipped("they need rows, and the model's tokenizer on this machine")
    rows = sorted(case.rows, key=lambda row: -len(str(row.get("extra_info"))))[:SAMPLE]
    counts = asked_lengths(case.config.data, load_template(case).tokenizer, rows)
    if counts is None:
        return None
    most, longest = case.number(PROMPT_TOKENS, 0), max(counts)
    over = sum(count > most for count in counts)
    if not over:
        return ok(f"at most {longest} of {most} tokens, and each of {len(counts)} rows has a truth")
    if case.get("data.filter_overlong_prompts") and over < len(case.rows):
        return ok(f"{over} of the {len(counts)} longest have more than {most} tokens, and are left out")
    return (problem if over == len(counts) else warning)(
        f"{over} of the {len(counts)} longest have more than {PROMPT_TOKENS}={most} tokens, up to {longest}",
        f"Set {PROMPT_TOKENS}={longest}, or leave them out: data.filter_overlong_prompts=true",
    )
