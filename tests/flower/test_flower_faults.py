"""Every rule under every fault of one node: the run goes on, and the record says why the node was left out."""

import pytest
from fault_table import flower_outcome, flower_strategies, outcome, rules
from flower_world import FAULTS


@pytest.mark.parametrize("name", rules())
def test_no_fault_of_a_node_ends_a_run(name):
    for fault in FAULTS.values():
        outcome(name, fault)


KILLS = ["extra metric", "missing key", "no num-examples", "wrong shape", "pickled array", "huge npy header"]


@pytest.mark.parametrize("fault", KILLS)
def test_flowers_own_strategies_end_under_the_same_faults(fault):
    """The comparison in docs/deploy.md; if Flower learns to survive one, the table there must change."""
    for name, strategy in flower_strategies().items():
        assert flower_outcome(strategy, FAULTS[fault]) != "survives", name
