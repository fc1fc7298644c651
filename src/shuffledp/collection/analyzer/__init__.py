"""The analyzer: takes batches in, opens and counts their messages, and publishes each round once."""
