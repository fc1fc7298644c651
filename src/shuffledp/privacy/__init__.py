"""Privacy theory: guarantees, divergences, distributions of noise, accounting per protocol, composition, audit."""
