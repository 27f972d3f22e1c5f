#!/usr/bin/env bash
# What every recipe's run.sh calls, from the repository's folder and in its environment: agent-rl train RECIPE "$@"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH="$PWD/.venv/bin:$PATH"
exec agent-rl train "$@"
