"""What lets verl run where it otherwise would not: its trainer and the real SGLang engine on a CPU.

`cpu` holds the switch and the environment, `platform` the device as verl sees it, `rollout` the weight transport,
`patches` the few places where verl or SGLang offers no extension point, and `stand_ins/` the modules that SGLang
imports but never calls on a CPU. The engine flags are the hydra group `platform=cpu`.
"""
