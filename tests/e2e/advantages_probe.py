"""Named in VERL_USE_EXTERNAL_MODULES: keeps what each training sequence gets as its advantage, beside its key."""

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt


def _keep(module: ModuleType) -> None:
    original = module.compute_advantage_for_multi_trajectories

    def compute(data: Any, batch_keys: list[str], **options: Any) -> Any:
        data = original(data, batch_keys=batch_keys, **options)
        advantages, mask = data.batch["advantages"], data.batch["response_mask"].bool()
        found = {
            key: sorted(set(advantages[row][mask[row]].tolist()))
            for row, key in enumerate(batch_keys)
            if not key.startswith("pad")
        }
        with open(Path(os.environ["PROBE_DIR"]) / "advantages.jsonl", "a") as file:
            file.write(json.dumps(found) + "\n")
        return data

    module.compute_advantage_for_multi_trajectories = compute  # type: ignore[attr-defined]


wrapt.register_post_import_hook(_keep, "verl.trainer.ppo.v1.trainer_base")
