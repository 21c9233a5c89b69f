"""Attacks, one small file each."""
