"""Experiments: the schema, TOML files, and the presets of the paper."""
