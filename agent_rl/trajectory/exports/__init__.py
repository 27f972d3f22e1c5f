"""A trace in the forms that other programs read (ATIF, flat records, data for fine-tuning, spans); a trained policy."""
