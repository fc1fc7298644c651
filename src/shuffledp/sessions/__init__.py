"""From columns of data to private answers: one-line functions, and several releases under one budget."""
