"""Aggregation rules, one small file each."""
