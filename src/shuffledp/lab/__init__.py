"""Studies, problems and structure: what reproduces the literature. The product never imports it."""
