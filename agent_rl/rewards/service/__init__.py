"""The reward as a service: `agent-rl reward serve --config service.yaml`.

It owns the HTTP side of scoring, and must not know verl or how a component measures. FastAPI, uvicorn and
prometheus-client are the extra `service`.
"""
