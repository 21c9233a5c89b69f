"""Every rule under every fault of one node: the run goes on, and the record says why the node was left out."""

import pytest
from fault_table import flower_outcome, flower_strategies, outcome, rules
from flower_world import FAULTS


@pytest.mark.parametrize("name", rules())
def test_no_fault_of_a_node_ends_a_run(name):
    for fault in FAULTS.values():
        outcome(name, fault)


# What each of Flower's own strategies does not survive; if Flower learns to, the table in docs/deploy.md must change.
ENDS = ["extra metric", "missing key", "no num-examples", "pickled array", "huge npy header", "torn objects"]


@pytest.mark.parametrize("fault", ENDS)
def test_flowers_own_strategies_end_under_the_same_faults(fault):
    for name, strategy in flower_strategies().items():
        assert flower_outcome(strategy, FAULTS[fault]).startswith("run ends"), name


@pytest.mark.parametrize("fault", ["wrong shape", "NaN"])
def test_flowers_fedavg_also_ends_or_loses_the_model_under(fault):
    assert flower_outcome(flower_strategies()["Flower's FedAvg"], FAULTS[fault]) != "survives"
