#!/usr/bin/env bash
# Train with an LLM judge, which must run: bash recipes/llm_judge/run.sh [key=value ...]; README.md starts one.
# On a CPU, two steps of a tiny model: VERL_PLATFORM=cpu bash recipes/llm_judge/run.sh
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/llm_judge "$@"
