"""Environments, made to look alike: N rows that step together. Never imports torch."""
