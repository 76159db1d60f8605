"""Learners: they form opinions about rollouts and improve a policy by them."""
