#!/usr/bin/env bash
# What every recipe's run.sh calls, from the repository's folder and in its environment: agent-rl train RECIPE "$@"
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec agent-rl train "$@"
