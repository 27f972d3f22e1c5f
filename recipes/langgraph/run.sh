#!/usr/bin/env bash
# Train the LangGraph agent: bash recipes/langgraph/run.sh [key=value ...]; --help says more.
# First: make programs, and VERL_PLATFORM=cpu agent-rl sft recipes/langgraph
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/langgraph "$@"
