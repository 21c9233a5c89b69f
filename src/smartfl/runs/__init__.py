"""Run directories: records, checkpoints, resume."""
