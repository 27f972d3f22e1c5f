"""Who an agent talks with: the interface, and a user played by a language model."""
