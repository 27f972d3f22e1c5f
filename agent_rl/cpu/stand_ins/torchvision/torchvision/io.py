"""Stand-in: image decoding."""

from agent_rl.cpu.placeholder import Placeholder

ImageReadMode = Placeholder("torchvision.io.ImageReadMode")
decode_image = Placeholder("torchvision.io.decode_image")
decode_jpeg = Placeholder("torchvision.io.decode_jpeg")
