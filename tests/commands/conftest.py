"""Sample run directories."""

from sample_runs import make_run as make_run
