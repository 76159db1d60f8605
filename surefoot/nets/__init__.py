"""Modules from tensors to tensors; they know nothing of environments or learning."""
