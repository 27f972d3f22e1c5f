#!/usr/bin/env bash
# The quickstart on this machine's CPU: bash recipes/quickstart/run.sh [--seed N] [--steps N] [key=value ...]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../environment.sh"
exec python recipes/quickstart/quickstart.py "$@"
