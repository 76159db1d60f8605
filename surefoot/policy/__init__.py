"""From observations to actions and values."""
