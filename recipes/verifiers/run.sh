#!/usr/bin/env bash
# Train in the environment of env.toml: bash recipes/verifiers/run.sh [key=value ...]; --help says more.
# First: the commands of README.md that make verifiers' Python and the rows
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/verifiers "$@"
