#!/usr/bin/env bash
# Train on mathematics with a code interpreter: bash recipes/math_python/run.sh [key=value ...]; --help says more.
# The CPU version: VERL_PLATFORM=cpu agent-rl sft recipes/math_python, then VERL_PLATFORM=cpu bash recipes/math_python/run.sh
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/math_python "$@"
