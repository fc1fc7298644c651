"""Survey pages: static sites on which people answer a task in their browsers."""
