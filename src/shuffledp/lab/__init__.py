"""Reproduction of the literature: bounds, problems, structural results and studies. The product never imports it."""
