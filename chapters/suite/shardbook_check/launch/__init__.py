"""Starts the programs of others, and ends them."""
