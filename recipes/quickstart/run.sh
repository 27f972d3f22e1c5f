#!/usr/bin/env bash
# The quickstart on this machine's CPU: bash recipes/quickstart/run.sh [--seed N] [--steps N] [key=value ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH="$PWD/.venv/bin:$PATH"
exec python recipes/quickstart/quickstart.py "$@"
