"""Engines: where a round is run and its data are read; local is this process."""
