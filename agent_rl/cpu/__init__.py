"""What lets verl and SGLang run without a GPU: `switch` and environment, platform, engine, stand-ins, tiny models.

It knows verl and SGLang, and nothing of agents, tools and rewards. The engine flags are the hydra group `platform=cpu`.
"""
