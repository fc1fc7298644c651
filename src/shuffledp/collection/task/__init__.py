"""Tasks: their documents, canonical JSON, signatures."""
