"""`export_model`: a run's policy as a model's folder that servers load, with the commands that serve it."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.verl_adapter.checkpoints import model_folder

__all__ = ["export_model"]

GENERATION = "generation_config.json"


def export_model(run: str, to: Path) -> list[str]:
    """Write the model of a run, or of one of its checkpoints, to a folder.

    The weights are those that `agent-rl eval` gets for the checkpoint. Where the run's record is beside its
    checkpoints, the generation config has the temperature, top_p and top_k of training, which servers take as defaults.

    Args:
        run: a run's folder, a checkpoint, or a model's folder.
        to: the folder, which is made.

    Returns:
        Commands that serve it.

    Raises:
        ConfigError: there is no checkpoint, the folder is not empty, or the model has no chat template.
    """
    if to.exists() and any(to.iterdir()):
        raise ConfigError("--to", f"{to} is not empty", "Name another folder")
    source = model_folder(run, "RUN")
    _require_template(source)
    shutil.copytree(source, to, dirs_exist_ok=True)
    if sampling := _sampling(Path(run).expanduser()):
        file = to / GENERATION
        known = json.loads(file.read_text()) if file.is_file() else {}
        if sampling["top_k"] < 1:  # no limit, which is 0 for transformers and vLLM, and refused by SGLang
            sampling["top_k"] = _vocabulary(to)
        file.write_text(json.dumps({**known, **sampling}, indent=2) + "\n", encoding="utf-8")
    name = shlex.quote(str(to))
    return [f"python -m sglang.launch_server --model-path {name}", f"vllm serve {name}"]


def _require_template(model: Path) -> None:
    file = model / "tokenizer_config.json"
    inside = file.is_file() and json.loads(file.read_text()).get("chat_template")
    if not inside and not (model / "chat_template.jinja").is_file():
        remedy = "Set actor_rollout_ref.model.custom_chat_template in the run that trains it"
        raise ConfigError("RUN", f"the model in {model} has no chat template", remedy)


def _vocabulary(model: Path) -> int:
    """Its size, also of a model that sees images."""
    config = json.loads((model / "config.json").read_text())
    return int((config.get("text_config") or config)["vocab_size"])


def _sampling(run: Path) -> dict[str, Any]:
    """How the run's rollouts are sampled, in the words of transformers; nothing without a record of the run."""
    record = next((each / "run.json" for each in (run, *run.absolute().parents) if (each / "run.json").is_file()), None)
    if record is None:
        return {}
    rollout: Mapping[str, Any] = json.loads(record.read_text())["configuration"]["actor_rollout_ref"]["rollout"]
    chosen = {name: rollout[name] for name in ("temperature", "top_p")}
    return {**chosen, "top_k": rollout["top_k"], "do_sample": chosen["temperature"] > 0}
