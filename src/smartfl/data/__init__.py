"""Data: sources, partitions, proxy selection."""
