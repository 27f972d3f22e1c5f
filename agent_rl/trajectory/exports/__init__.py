"""Exports traces for other programs (ATIF, flat records, fine-tuning data), and imports GGUF models."""
