"""Support for running verl and SGLang without a GPU: the switch, platform, engines, patches, stand-ins and tiny models.

This package must not depend on agents, tools or rewards. The engine flags are in the hydra group `platform=cpu`.
"""
