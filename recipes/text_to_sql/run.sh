#!/usr/bin/env bash
# Train on questions about databases: bash recipes/text_to_sql/run.sh [key=value ...]; --help says more.
# The CPU version: VERL_PLATFORM=cpu agent-rl sft recipes/text_to_sql, then VERL_PLATFORM=cpu bash recipes/text_to_sql/run.sh
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/text_to_sql "$@"
