#!/usr/bin/env bash
# Train a shop's assistant with two reward models: bash recipes/multi_rm/run.sh [key=value ...]; --help says more.
# On a CPU, two steps of tiny models: VERL_PLATFORM=cpu bash recipes/multi_rm/run.sh
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/multi_rm "$@"
