#!/usr/bin/env bash
# Train on programs that tests decide about: bash recipes/code/run.sh [key=value ...]; --help says more.
# The CPU version: VERL_PLATFORM=cpu agent-rl sft recipes/code, then VERL_PLATFORM=cpu bash recipes/code/run.sh
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/code "$@"
