#!/usr/bin/env bash
# Train on GSM8K with a calculator: bash recipes/gsm8k_calculator/run.sh [key=value ...]
# On a CPU, two steps of a tiny model: VERL_PLATFORM=cpu bash recipes/gsm8k_calculator/run.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH="$PWD/.venv/bin:$PATH"
if [ "${VERL_PLATFORM:-}" = cpu ] && [ ! -e outputs/tiny_model/config.json ]; then
    python -m agent_rl.backend.tiny_model --out outputs/tiny_model
fi
exec agent-rl train recipes/gsm8k_calculator "$@"
