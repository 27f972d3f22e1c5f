"""Stand-in: image transforms as functions."""

from agent_rl.cpu.placeholder import Placeholder

InterpolationMode = Placeholder("torchvision.transforms.functional.InterpolationMode")
pil_to_tensor = Placeholder("torchvision.transforms.functional.pil_to_tensor")
