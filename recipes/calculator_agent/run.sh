#!/usr/bin/env bash
# Train a calculator agent: bash recipes/calculator_agent/run.sh [key=value ...]; --help says more.
# On a CPU: VERL_PLATFORM=cpu agent-rl experiment recipes/calculator_agent --seeds 3 size=smollm2
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/calculator_agent "$@"
