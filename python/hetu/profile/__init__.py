"""Measurements of this machine, and readers of measurements that others published."""
