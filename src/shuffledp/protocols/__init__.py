"""One file per published protocol, by the question it answers."""
