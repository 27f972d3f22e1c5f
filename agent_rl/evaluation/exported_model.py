"""`export_model`: writes a run's policy as a model folder that servers can load, and returns commands to serve it."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.verl_adapter.checkpoints import model_folder


def export_model(run: str, to: Path) -> list[str]:
    """Write the model of a run, or of one of its checkpoints, to a folder.

    `agent-rl eval` uses the same weights when it evaluates the checkpoint. If the run's record is next to its
    checkpoints, the generation config gets the temperature, top_p and top_k of training, which servers use as defaults.

    Args:
        run: a run's folder, a checkpoint, or a model's folder.
        to: the folder to create.

    Returns:
        Commands that serve the model.

    Raises:
        ConfigError: the run has no checkpoint, the folder is not empty, or the model has no chat template.
    """
    if to.exists() and any(to.iterdir()):
        raise ConfigError("--to", f"{to} is not empty", "Choose another folder")
    source = model_folder(run, "RUN")
    file = source / "tokenizer_config.json"
    inside = file.is_file() and json.loads(file.read_text()).get("chat_template")
    if not inside and not (source / "chat_template.jinja").is_file():
        remedy = "Set actor_rollout_ref.model.custom_chat_template in the run that trains the model"
        raise ConfigError("RUN", f"the model in {source} has no chat template", remedy)
    shutil.copytree(source, to, dirs_exist_ok=True)
    if sampling := _sampling(Path(run).expanduser()):
        file = to / "generation_config.json"
        known = json.loads(file.read_text()) if file.is_file() else {}
        if sampling["top_k"] < 1:  # verl writes "no limit" as 0 or -1, which SGLang rejects
            config = json.loads((to / "config.json").read_text())
            sampling["top_k"] = int((config.get("text_config") or config)["vocab_size"])  # text_config: a vision model
        file.write_text(json.dumps({**known, **sampling}, indent=2) + "\n", encoding="utf-8")
    name = shlex.quote(str(to))
    return [f"python -m sglang.launch_server --model-path {name}", f"vllm serve {name}"]


def _sampling(run: Path) -> dict[str, Any]:
    """Return the sampling settings of a run's rollouts, named as in transformers, or {} if the run has no record."""
    files = (folder / "run.json" for folder in (run, *run.absolute().parents))
    record = next((file for file in files if file.is_file()), None)
    if record is None:
        return {}
    rollout: Mapping[str, Any] = json.loads(record.read_text())["configuration"]["actor_rollout_ref"]["rollout"]
    chosen = {name: rollout[name] for name in ("temperature", "top_p")}
    return {**chosen, "top_k": rollout["top_k"], "do_sample": chosen["temperature"] > 0}
