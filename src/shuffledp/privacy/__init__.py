"""The theory in one place: guarantees, divergences, the binomial distribution, smoothness, calibration, composition."""
