"""Places to show what happens."""
