"""Exports traces for other programs (ATIF, flat records, fine-tuning data, spans), and imports GGUF models."""
