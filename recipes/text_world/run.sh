#!/usr/bin/env bash
# Train in a household: bash recipes/text_world/run.sh [key=value ...]; --help says more.
# The CPU version: VERL_PLATFORM=cpu agent-rl sft recipes/text_world, then VERL_PLATFORM=cpu bash recipes/text_world/run.sh
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/text_world "$@"
