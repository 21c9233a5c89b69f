"""Records of runs: one schema, written and read here; run directories, and files that hold all runs of a study."""
