"""The theory in one place: guarantees, divergences, the binomial law, smoothness, calibration, composition."""
