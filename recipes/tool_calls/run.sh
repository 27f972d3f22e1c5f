#!/usr/bin/env bash
# Train on requests for function calls: bash recipes/tool_calls/run.sh [key=value ...]; --help says more.
# The CPU version: VERL_PLATFORM=cpu agent-rl sft recipes/tool_calls, then VERL_PLATFORM=cpu bash recipes/tool_calls/run.sh
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/tool_calls "$@"
