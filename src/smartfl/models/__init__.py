"""Architectures, one small file each."""
