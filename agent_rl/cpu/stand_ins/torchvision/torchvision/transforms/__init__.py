"""Stand-in: image transforms."""

from agent_rl.cpu.placeholder import Placeholder

InterpolationMode = Placeholder("torchvision.transforms.InterpolationMode")
