#!/usr/bin/env bash
# Train with a reward service, which must run: bash recipes/reward_api/run.sh [key=value ...]; README.md starts it.
# On a CPU, two steps of a tiny model: VERL_PLATFORM=cpu bash recipes/reward_api/run.sh
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/reward_api "$@"
