#!/usr/bin/env bash
# Train on GSM8K with a Bradley-Terry reward model: bash recipes/bt_reward_model/run.sh [key=value ...]; --help says more.
# On a CPU, two steps of tiny models: VERL_PLATFORM=cpu bash recipes/bt_reward_model/run.sh
exec bash "$(dirname "${BASH_SOURCE[0]}")/../run.sh" recipes/bt_reward_model "$@"
