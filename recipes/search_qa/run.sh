#!/usr/bin/env bash
# Train on questions that need a search: bash recipes/search_qa/run.sh [key=value ...]; --help says more.
# The CPU version: VERL_PLATFORM=cpu agent-rl sft recipes/search_qa, then VERL_PLATFORM=cpu bash recipes/search_qa/run.sh
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/search_qa "$@"
