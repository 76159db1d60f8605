"""Episodes as films."""
