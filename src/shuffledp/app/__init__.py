"""``shuffledp app``: the planner as a local page, on loopback only."""
