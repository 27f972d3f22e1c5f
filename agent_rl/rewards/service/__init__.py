"""The reward as a service: `agent-rl reward serve --config service.yaml`.

`settings` is its configuration, `wire` what it is asked and answers, `scoring` what computes, `gate` who may come
in and how much, `app` the routes, `server` the process. FastAPI, uvicorn and prometheus-client are the extra `service`.
"""
