"""The checks of `agent-rl certify run`.

Each check is a generator that yields the problems it finds in the samples, and returns a description of what it
examined. A check that cannot examine anything raises `NotCheckedError` with the reason.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import Any

import numpy as np

from agent_rl.agents.policies.chat_template import RESULT, USER, template_of
from agent_rl.evaluation.audit import audit_trajectory, sampled_texts, stretches_of
from agent_rl.evaluation.model_log_probs import FACTORS, ModelLogProbs
from agent_rl.evaluation.run_record import UNEXPLAINED, StoredSample
from agent_rl.settings import AgentRLSettings
from agent_rl.trajectory.selection import MEASURES, SampleFate, fate_means, selection_bias

Found = Generator[str, None, str]
MOST = 64
"""Maximum number of trajectories per step whose log-probs are recomputed."""
FAR, STALE = 0.05, 0.02
"""Mean differences above which log-probs do not match the given weights (`FAR`) or may match earlier ones (`STALE`)."""
CHANCE = 1e-6
"""Maximum probability of a false alarm about the temperature."""
NO_TOKENS = "no tokens were stored: set agent_rl.trace.tokens=true"


class NotCheckedError(Exception):
    """Raised if a check is not possible; the message is the reason."""


def check_tokens(samples: Iterable[StoredSample], settings: AgentRLSettings) -> Found:
    """Every sampled token is trained on exactly once, unless there is a known reason."""
    trained, rest, any_rows = 0, Counter[str](), False
    for sample in samples:
        sampled = sum(tokens for _, tokens in sampled_texts(sample.trajectory))
        masked = sum(sum(own["mask"]) for own in sample.sequences)
        updates, sequences = Counter(row.sequence for row in sample.rows), sample.trained(settings)
        own = sum(sum(sequences[number].mask) for number in updates if number < len(sequences))
        trained, any_rows = trained + own, any_rows or bool(sample.rows)
        rest["masked" if sample.fate == "kept" else sample.fate] += max(0, sampled - own)
        if sample.fate == UNEXPLAINED:
            yield f"{sample.id}: the trajectory has a reward, but is in no batch"
        if sample.sequences and masked != sampled:
            yield f"{sample.id}: {masked} tokens have mask 1, but {sampled} were sampled"
        elif (place := _first_difference(sample)) is not None:
            yield f"{sample.id}: sampled token {place} is a different token in the training sequences"
        if any(number >= len(sequences) for number in updates):
            yield f"{sample.id}: the trainer used it, but its tokens are not stored"
        for number in range(len(sequences)) if sample.rows else ():
            if updates[number] > 1 or updates[number] < any(sequences[number].mask):
                yield f"{sample.id}: sequence {number} is in {updates[number]} updates"
    if not any_rows:
        raise NotCheckedError("no batches were stored: set agent_rl.trace.tokens=true")
    parts = [f"{trained:,} trained once", *(f"{count:,} {fate}" for fate, count in rest.items() if count)]
    return f"{trained + sum(rest.values()):,} sampled tokens: {', '.join(parts)}"


def _first_difference(sample: StoredSample) -> int | None:
    """Return the index of the first token at which engine and training differ, or None if no difference is known."""
    pairs = chain.from_iterable(zip(own["response_ids"], own["mask"], strict=False) for own in sample.sequences)
    trained = (token for token, mask in pairs if mask)
    sampled = chain.from_iterable(sample.trajectory.info.get("sampled_ids", ()))
    return next((place for place, (a, b) in enumerate(zip(sampled, trained, strict=False)) if a != b), None)


def check_masks(samples: Iterable[StoredSample], chat: Any) -> Found:
    """Only the sampled turns have mask 1 and log-probs, and each turn is followed by the template's tokens."""
    if chat is None:
        raise NotCheckedError("pass --tokenizer")
    turns, template = 0, template_of(chat.tokenizer)

    @lru_cache(maxsize=4096)
    def following(last: int, tool: bool) -> list[int] | None:
        """Return the tokens between a turn that ends with the token `last` and the text of the following message."""
        try:
            merged = chat.builder.merge_context_tokens([], [RESULT if tool else USER], [last])
        except Exception:  # noqa: BLE001 - a template may reject a role with any error; the other role is tried too
            return None
        return list(merged.token_ids[1 : 2 + len(merged.inserted_token_ids)])

    for sample in samples:
        for audit in audit_trajectory(sample.trajectory, template) if sample.sequences else ():
            turns += 1
            if problem := audit.mask or audit.logprobs:
                yield f"{sample.id}, turn {audit.turn}: {problem}"
        for own in chain.from_iterable(map(stretches_of, sample.sequences)):
            after = own.sequence["response_ids"][own.end :]
            both = [following(own.ids[-1], tool) for tool in (False, True)] if own.ids and after else []
            expected = [ids for ids in both if ids is not None] or [[]]
            if hasattr(chat.builder, "template") and not any(ids == after[: len(ids)] for ids in expected):
                texts = (template.decode(ids) for ids in (after[: len(expected[0])], expected[0]))
                yield "{}: {!r} follows a turn instead of {!r}".format(sample.id, *texts)
    if not turns:
        raise NotCheckedError(NO_TOKENS)
    return f"{turns:,} turns, with their log-probs and the tokens that follow them"


def check_images(samples: Iterable[StoredSample], token: int | None) -> Found:
    """The trainer got the images whose placeholders are in the tokens."""
    images = 0
    for sample in samples:
        for own in sample.sequences:
            images += own["images"]
            runs = groupby([*own["prompt_ids"], *own["response_ids"]])
            shown = own["images"] if token is None else sum(each == token for each, _ in runs)
            if shown != own["images"]:
                yield f"{sample.id}: the tokens show {shown} images, but the trainer got {own['images']}"
    if not images or token is None:
        raise NotCheckedError("there are no images" if not images else "no image_token_id: pass --tokenizer")
    return f"{images:,} images"


def check_log_probs(samples: Iterable[StoredSample], weights: Mapping[int, str], evidence: dict[float, Any]) -> Found:
    """The log-probs match those of the weights with which their step was sampled.

    Args:
        samples: the samples.
        weights: the folder of the weights that sampled each step, by step; the key 0 means all other steps.
        evidence: filled with the tokens' log-likelihood ratios at `FACTORS` times each requested temperature.
    """
    seen, errors, earlier = Counter[int](), defaultdict[int, list[Any]](list), defaultdict[int, list[Any]](list)
    for sample in samples:
        step = int(sample.trajectory.info.get("step") or 0)
        folder = weights.get(step, weights.get(0))
        before = max((other for other in weights if 0 < other < step), default=0)
        seen[step] += 1
        for own in sample.sequences if folder and seen[step] <= MOST else ():
            places = np.flatnonzero(own["mask"])
            if own["logprobs"] is None or len(own["logprobs"]) != len(own["mask"]) or own["images"] or not len(places):
                continue
            ids, rows = [*own["prompt_ids"], *own["response_ids"]], places + len(own["prompt_ids"]) - 1
            recorded, temperature = np.array(own["logprobs"])[places], sample.temperature
            computed, *others = _model(folder).at_temperatures(ids, [temperature * each for each in (1, *FACTORS)])
            errors[step].append(np.abs(recorded - computed[rows]))
            if before:
                (older,) = _model(weights[before]).at_temperatures(ids, [temperature])
                earlier[step].append(np.abs(recorded - older[rows]))
            ratios = np.array([(other - computed)[rows].sum() for other in others])
            evidence[temperature] = evidence.get(temperature, 0.0) + ratios
    if not errors:
        raise NotCheckedError("there are no log-probs, or no weights for their step: pass --model")
    texts = []
    for step, parts in errors.items():
        every = np.concatenate(parts)
        mean, usual = every.mean(), np.quantile(every, 0.95)
        texts.append(f"{mean:.2g} over {len(every):,} tokens of step {step} ({weights.get(step, weights.get(0))})")
        other = np.concatenate(earlier[step]).mean() if earlier[step] else np.inf
        if not np.isfinite(mean):
            yield f"step {step}: the mean difference is {mean:g}"
        elif mean > max(STALE, 3 * other):
            yield f"step {step}: log-probs fit earlier weights better (mean difference {other:.2g}, not {mean:.2g})"
        elif mean > FAR:
            yield f"step {step}: the weights yield log-probs that differ by {mean:.2g} on average"
        elif outliers := int((every > max(0.01, 50 * usual)).sum()):
            yield f"step {step}: {outliers} tokens differ by up to {every.max():.2g}, but 95% by at most {usual:.2g}"
    return f"mean difference {'; '.join(texts)}"


@lru_cache(maxsize=2)
def _model(folder: str) -> ModelLogProbs:
    from agent_rl.verl_adapter.checkpoints import model_folder

    return ModelLogProbs(str(model_folder(folder, "--model")))


def check_sampling(evidence: Mapping[float, Any], truncates: bool) -> Found:
    """The tokens were sampled at the requested temperature.

    For tokens sampled at the requested temperature, the mean likelihood ratio of other temperatures exceeds x with a
    probability of at most 1/x (Markov's inequality), regardless of the number of tokens. The inequality requires that
    the given model sampled the tokens, and that the choice of the stored trajectories does not depend on their tokens.
    """
    if truncates or not evidence:
        raise NotCheckedError("top_p or top_k truncates the sampling" if truncates else "no log-probs were recomputed")
    for temperature, ratios in evidence.items():
        strength = np.logaddexp.reduce(ratios) - np.log(len(ratios))
        if not np.isfinite(strength):
            raise NotCheckedError("the model's log-probs are not finite")
        if strength > -np.log(CHANCE):
            factor = FACTORS[int(np.argmax(ratios))]
            yield f"temperature {factor * temperature:g} explains the tokens e^{strength:.0f} times better"
    return f"temperature {', '.join(f'{each:g}' for each in evidence)}"


def check_rewards(samples: Iterable[StoredSample], settings: AgentRLSettings) -> Found:
    """Rewards are weighted sums of components, trained trajectories have rewards, and a group shares one prompt."""
    own = settings.reward
    is_sum = own.combine == "sum" and not any("combine" in each for each in own.per_data_source.values())
    scored, compared, prompts = 0, 0, dict[str, tuple[str, Any]]()
    for sample in samples:
        score, error = sample.trajectory.score, sample.trajectory.error
        prompt = sample.trajectory.row or sample.trajectory.prompt
        first, other = prompts.setdefault(sample.group, (sample.id, prompt))
        if prompt != other:
            yield f"{sample.id}: the prompt differs from the prompt of {first} in the same group"
        if sample.rows and (score is None or error):
            yield f"{sample.id}: the trainer used it, but it has no score ({error or 'no reason is stored'})"
        scored += score is not None
        if score is not None and not math.isfinite(score.total):
            yield f"{sample.id}: the reward is {score.total:g}"
        elif score is not None and score.weights and is_sum:
            compared += 1
            total = sum(weight * score.components.get(name, 0.0) for name, weight in score.weights.items())
            if not abs(total - score.total) <= 1e-6 * max(1.0, abs(score.total)):
                yield f"{sample.id}: the reward is {score.total:g}, but its components yield {total:g}"
    return f"{scored:,} rewards, {compared:,} with components and weights, and the prompts of {len(prompts):,} groups"


def check_advantages(samples: Sequence[StoredSample], settings: AgentRLSettings, algorithm: Any) -> Found:
    """The stored advantages equal those that the estimator computes from the rewards."""
    if algorithm is None:
        raise NotCheckedError("pass --algo")
    from agent_rl.verl_adapter.algorithms.turns import BY_TURN
    from agent_rl.verl_adapter.certificates.stored import STORED, StoredRow, stored_advantages, turn_record

    if algorithm.adv_estimator not in STORED or algorithm.use_kl_in_reward:
        raise NotCheckedError(f"{algorithm.adv_estimator} reads more than rewards, masks and turns")
    if algorithm.adv_estimator in BY_TURN and any(each.trajectory.info.get("gateway") for each in samples):
        raise NotCheckedError("the order of turns in a gateway's conversations is not stored")
    batches = defaultdict[tuple[int, int], list[tuple[str, Any, StoredRow]]](list)
    for sample in samples:
        if (score := sample.trajectory.score) is None:
            continue
        sequences = sample.trained(settings)
        for row in (each for each in sample.rows if each.sequence < len(sequences)):
            own = sequences[row.sequence]
            record = turn_record(own, sample.trajectory, settings.gigpo)
            stored = StoredRow(f"{sample.id}_{row.sequence}", score.total, own.mask, record)
            batches[row.step, row.update].append((sample.id, row.advantage, stored))
    if not batches:
        raise NotCheckedError(NO_TOKENS)
    for batch in batches.values():
        expected = stored_advantages([stored for *_, stored in batch], algorithm, settings.gigpo)
        for (id, advantage, stored), values in zip(batch, expected, strict=True):
            each = advantage if isinstance(advantage, list) else [advantage] * len(values)
            pairs = [(a, b) for a, b, mask in zip(each, values, stored.mask, strict=False) if mask]
            if wrong := next((own for own in pairs if not abs(own[0] - own[1]) <= 1e-3 * max(1, abs(own[1]))), None):
                yield f"{id}: the advantage is {wrong[0]:.4g}, but the group's rewards yield {wrong[1]:.4g}"
    return f"{sum(map(len, batches.values())):,} rows of {len(batches):,} updates ({algorithm.adv_estimator})"


def check_dropped(samples: Sequence[StoredSample]) -> Found:
    """Report which trajectories were left out of training, and how much this shifts the means over trajectories."""
    yield from ()  # reports no problem, because dropping a trajectory is allowed
    fates = []
    for sample in samples:
        own = sample.trajectory
        tokens = sum(len(each["response_ids"]) for each in sample.sequences) or own.response_tokens
        reward = own.score.total if own.score and math.isfinite(own.score.total) else None
        fates.append(SampleFate(sample.fate, tokens, len(own.turns), sample.group, reward))
    bias = selection_bias(fates)
    parts = [f"{own['share']:.1%} {fate}" for fate, own in fate_means(fates).items() if own["share"]]
    moved = [f"{name.replace('_', ' ')} {bias[name]:+.3g}" for name in MEASURES if name in bias]
    bound = f" (at most {bias['reward_bound']:.3g})" if "reward_bound" in bias else ""
    text = f"{len(samples):,} trajectories: {', '.join(parts)}"
    return text if len(parts) == 1 else f"{text}. Mean of those kept minus mean of all: {', '.join(moved)}{bound}"
