"""Collectors: they play with an actor and record facts."""
