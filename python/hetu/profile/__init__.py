"""Measurements of this machine."""
