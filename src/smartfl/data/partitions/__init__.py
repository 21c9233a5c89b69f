"""Partitions, one small file each: labels → one sorted index array per client, disjoint.

A partition is a function that asks by name for what it needs: ``labels`` (N,) int64, ``clients``, ``rng``,
``num_classes``, and settings of ``[data]`` such as ``alpha``.
"""
