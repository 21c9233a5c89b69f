"""The same federated workload in smartfl, Flower, pfl-research and a hand-written loop: one file per peer."""
