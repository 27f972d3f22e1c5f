"""Stand-in: image transforms, second version, as functions."""

from agent_rl.cpu.placeholder import Placeholder

pil_to_tensor = Placeholder("torchvision.transforms.v2.functional.pil_to_tensor")
