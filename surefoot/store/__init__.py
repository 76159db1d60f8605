"""Checkpoints on disk, and where they are kept."""
