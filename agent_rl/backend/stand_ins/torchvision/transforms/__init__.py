"""Stand-in: image transforms."""

from agent_rl.backend.placeholder import Placeholder

InterpolationMode = Placeholder("torchvision.transforms.InterpolationMode")
