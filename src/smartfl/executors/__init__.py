"""Executors: who trains a cohort, one after another or in worker processes."""
