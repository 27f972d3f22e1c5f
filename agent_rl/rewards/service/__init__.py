"""The reward as a service: `agent-rl reward serve --config service.yaml`.

This package handles the HTTP side of scoring. The package must not depend on verl, or on how components compute values.
The service needs FastAPI, uvicorn and prometheus-client, which the `service` extra installs.
"""
