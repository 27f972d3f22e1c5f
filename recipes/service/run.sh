#!/usr/bin/env bash
# Train a service desk: bash recipes/service/run.sh [key=value ...]; --help says more.
# The CPU version: VERL_PLATFORM=cpu agent-rl sft recipes/service, then VERL_PLATFORM=cpu bash recipes/service/run.sh
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/service "$@"
