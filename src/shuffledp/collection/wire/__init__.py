"""The bytes that travel: reports and batches, keys, sealing, padding and opening."""
