"""What a machine can do: the numbers behind ``smartfl bench`` and the scripts in benchmarks/."""
