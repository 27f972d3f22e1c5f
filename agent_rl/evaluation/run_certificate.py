"""`certify_run`: checks a finished run, or another trainer's dump, and returns the lines of a one-page report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

import agent_rl.config
from agent_rl.errors import AgentRLError, ConfigError
from agent_rl.evaluation import run_checks as checks
from agent_rl.evaluation.run_record import StoredSample, read_dump, read_run
from agent_rl.launch.recipes import share_folder
from agent_rl.rewards.component import Component
from agent_rl.rewards.custom import configured_reward
from agent_rl.rewards.lab.attack import run_attacks
from agent_rl.rewards.lab.mutations import ATTACKS
from agent_rl.settings import AgentRLSettings
from agent_rl.trajectory.run_files import leaves, read_record
from agent_rl.work.store import Pieces

CERTIFICATES = "docs/reference/certificates.json"
EXAMPLES = 3
"""Maximum number of problems shown for each line of the report."""
MOST_WEIGHTS = 3
"""Log-probs are recomputed for at most this number of a run's steps, because each step's checkpoint must be merged."""
PLAIN = {
    "algorithm.norm_adv_by_std_in_grpo": True,
    "algorithm.gamma": 1.0,
    "algorithm.lam": 1.0,
    "algorithm.filter_groups.enable": False,
    "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
    "actor_rollout_ref.actor.policy_loss.loss_mode": "vanilla",
}
"""Keys on which a certificate depends, besides the estimator, with the values that apply unless `algo=` sets others."""
BESIDES = {
    "actor_rollout_ref.actor.use_kl_loss": False,
    "algorithm.use_kl_in_reward": False,
    "actor_rollout_ref.actor.entropy_coeff": 0,
    "actor_rollout_ref.actor.ppo_epochs": 1,
}
"""Keys for which a certificate covers only these values."""
ATTACKED = 32
"""Maximum number of trajectories with which the reward is attacked."""


@dataclass
class Line:
    """One line of the report: a check and its result."""

    check: str
    source: str
    """The data or the method with which the run was checked."""
    text: str
    """What the check examined, or why the check was not possible."""
    status: str = "not checked"
    """`ok`, `problem` or `not checked`."""
    problems: list[str] = field(default_factory=list)


def certify_run(
    path: Path, tokenizer: str | None = None, weights: Mapping[int, str] | None = None, algo: str | None = None
) -> list[Line]:
    """Return the lines of the report on a run or a dump.

    Args:
        path: a run's folder, or a dump; see `run_record`.
        tokenizer: folder or name of the model; None means the run's model or, for a dump, the first of `weights`.
        weights: the folder of each step's sampling weights (key 0: all other steps); None means the run's weights.
        algo: the value of `algo=` with which a dump was trained.

    Raises:
        ConfigError: a file or an option cannot be used.
    """
    about: dict[str, Any] = {"configuration": {}}
    if path.is_dir():
        about = read_record(path, str(path), "Pass the folder of a run, or a dump")
    configuration = about["configuration"]
    keys, settings = dict(leaves(configuration)), AgentRLSettings.from_config(configuration)
    samples = list(read_run(path, keys, about.get("started", ())) if path.is_dir() else read_dump(path))
    if not samples:
        raise ConfigError(str(path), "there is no training trajectory", "Pass a run with a trace, or a dump")
    are_own = not weights
    weights = weights or _weights(path, keys, {row.step for sample in samples for row in sample.rows})
    model = tokenizer or keys.get("actor_rollout_ref.model.path") or next(iter(weights.values()), None)
    word, algorithm = _algorithm(keys, configuration, algo)
    is_cut = keys.get("actor_rollout_ref.rollout.top_p", 1) < 1 or keys.get("actor_rollout_ref.rollout.top_k", -1) > 0
    is_cut |= any(each.trajectory.info.get("truncated") for each in samples)
    evidence: dict[float, Any] = {}
    return [
        _line("tokens", "masks and batches", checks.check_tokens(samples, settings)),
        _line("masks", f"the chat template of {model}", checks.check_masks(samples, _chat(keys, configuration, model))),
        _line("images", "placeholders in the tokens", checks.check_images(samples, _image_token(model))),
        _line("log-probs", "weights of the step", checks.check_log_probs(samples, weights, evidence), are_own),
        _line("sampling", "likelihoods at other temperatures", checks.check_sampling(evidence, is_cut)),
        _line("rewards", "components, weights and prompts", checks.check_rewards(samples, settings)),
        _line("advantages", "verl's estimator", checks.check_advantages(samples, settings, algorithm)),
        _estimator(word, keys),
        _line("dropped", "fates, sizes and rewards", checks.check_dropped(samples)),
        _attack(samples, configuration, settings),
    ]


def _line(check: str, source: str, found: checks.Found, are_own: bool = False) -> Line:
    """Return a check's line; if the check reads the run's own files (`are_own`), a ConfigError means "not checked"."""
    problems = []
    try:
        while True:
            problems.append(next(found))
    except StopIteration as end:
        text, status = str(end.value), "ok"
    except checks.NotCheckedError as error:
        text, status = str(error), "not checked"
    except ConfigError as error:
        if not are_own:
            raise
        text, status = error.problem, "not checked"
    text = f"{len(problems):,} problems; {text}" if len(problems) > EXAMPLES else text
    return Line(check, source, text, "problem" if problems else status, problems[:EXAMPLES])


def _weights(path: Path, keys: Mapping[str, Any], steps: set[int]) -> dict[int, str]:
    """Return the folders of the weights that sampled up to `MOST_WEIGHTS` steps, or {} if a step may mix weights."""
    if keys.get("trainer.v1.trainer_mode") != "sync":
        return {}
    folder = Path(keys["trainer.default_local_dir"]).expanduser()
    folder = folder if folder.is_dir() else path / "checkpoints"
    weights = {int(each.name.rpartition("_")[2]) + 1: str(each) for each in folder.glob("global_step_*")}
    if Path(model := keys["actor_rollout_ref.model.path"]).is_dir():
        weights[1] = model
    known = sorted(weights.keys() & steps)
    return {step: weights[step] for step in known[:: -(-len(known) // MOST_WEIGHTS) or 1]}


def _chat(keys: Mapping[str, Any], configuration: Mapping[str, Any], model: str | None) -> Any:
    if model is None:
        return None
    from agent_rl.verl_adapter.inspection import load_chat_tokenizer

    options = (configuration.get("data") or {}).get("apply_chat_template_kwargs")
    try:
        return load_chat_tokenizer(model, options, keys.get("actor_rollout_ref.model.custom_chat_template"))
    except ConfigError:
        if model != keys.get("actor_rollout_ref.model.path"):
            raise
        return None  # the run's model is not on this machine


def _image_token(model: str | None) -> int | None:
    file = Path(model or "") / "config.json"
    token: int | None = json.loads(file.read_text()).get("image_token_id") if file.is_file() else None
    return token


def _algorithm(keys: Mapping[str, Any], configuration: Mapping[str, Any], algo: str | None) -> tuple[str, Any]:
    """Return the certificate's name and the `algorithm` section (None if unknown) for a run or an `algo=` word."""
    if algo is None:
        return _word(keys), OmegaConf.create(configuration["algorithm"]) if configuration else None
    from agent_rl.verl_adapter.certificates import methods

    (name, *_) = methods.find([algo])
    return name, methods.method(name).algorithm


def _word(keys: Mapping[str, Any]) -> str:
    """Return the `algo=` word whose certificate applies to a run, or an empty string if no certificate applies."""
    for file in sorted((Path(agent_rl.config.__path__[0]) / "algo").glob("*.yaml")):
        own = PLAIN | dict(leaves(OmegaConf.to_container(OmegaConf.load(file))))
        if all(keys.get(key) == own[key] for key in ("algorithm.adv_estimator", *PLAIN)):
            return f"algo={file.stem}"
    return ""


def _estimator(word: str, keys: Mapping[str, Any]) -> Line:
    file = share_folder() / CERTIFICATES
    verdicts = {each["name"]: each["verdict"] for each in json.loads(file.read_text())["certificates"]}
    if word not in verdicts:
        is_run = "algorithm.adv_estimator" in keys
        why = "no certificate has these settings: see agent-rl certify algo" if is_run else "pass --algo"
        return Line("estimator", CERTIFICATES, why)
    besides = [f"{key}={keys[key]}" for key, value in BESIDES.items() if keys.get(key, value) != value]
    if keys.get("data.train_batch_size") != keys.get("actor_rollout_ref.actor.ppo_mini_batch_size"):
        besides.append("several updates per batch")
    text = f"{word}: {verdicts[word]}{'; it does not cover ' * bool(besides)}{', '.join(besides)}"
    return Line("estimator", CERTIFICATES, text, "ok")


def _attack(samples: Sequence[StoredSample], configuration: Mapping[str, Any], settings: AgentRLSettings) -> Line:
    """Attack the run's reward, unless it uses a service, whose answers may cost money.

    A custom `compute_score` is called for each trajectory and each attack, even if the function calls a service.
    """
    source, scored = "agent-rl reward attack", [each.trajectory for each in samples if each.trajectory.score][:ATTACKED]
    if not configuration:
        return Line("reward", source, "a dump does not contain the reward's code")
    if not scored:
        return Line("reward", source, "no trajectory has a score")
    function, limit = configuration["reward"]["custom_reward_function"], configuration["data"]["max_response_length"]
    try:
        reward = configured_reward(settings.reward, function, max_response_tokens=limit)
    except ConfigError as error:
        return Line("reward", source, f"the reward cannot be loaded ({error})")
    if services := [each.name for each in reward.components if type(each).reach is not Component.reach]:
        return Line("reward", source, f"{', '.join(services)} would call a service")

    async def attack() -> dict[str, Any]:
        try:
            return await run_attacks(scored, reward, ATTACKS, kept=Pieces())
        finally:
            await reward.close()

    try:
        attacks = asyncio.run(attack())["attacks"]
    except AgentRLError as error:
        return Line("reward", source, f"the reward raised an error ({error})")
    raised = [f"{name}: {own['purpose']}" for name, own in attacks.items() if own["example"] is not None]
    text = f"{len(attacks)} attacks on {len(scored)} trajectories; {len(raised)} attacks raise or escape the reward"
    return Line("reward", source, text, "problem" if raised else "ok", raised[:EXAMPLES])
