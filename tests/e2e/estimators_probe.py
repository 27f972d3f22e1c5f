"""Named in VERL_USE_EXTERNAL_MODULES: what each estimator of verl's makes of the batch that is trained on."""

import copy
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

ESTIMATORS = ("grpo", "rloo", "reinforce_plus_plus_baseline")


def _keep(module: ModuleType) -> None:
    original = module.compute_advantage_for_multi_trajectories

    def advantages(data: Any, batch_keys: list[str]) -> dict[str, list[float]]:
        mask = data.batch["response_mask"].bool()
        return {key: data.batch["advantages"][row][mask[row]].tolist() for row, key in enumerate(batch_keys)}

    def compute(data: Any, batch_keys: list[str], **options: Any) -> Any:
        found = {}
        for name in ESTIMATORS:
            made = original(copy.deepcopy(data), batch_keys=batch_keys, **{**options, "adv_estimator": name})
            found[name] = advantages(made, batch_keys)
        data = original(data, batch_keys=batch_keys, **options)
        found["trained"] = advantages(data, batch_keys)
        (Path(os.environ["PROBE_DIR"]) / "estimators.json").write_text(json.dumps(found))
        return data

    module.compute_advantage_for_multi_trajectories = compute  # type: ignore[attr-defined]


wrapt.register_post_import_hook(_keep, "verl.trainer.ppo.v1.trainer_base")
