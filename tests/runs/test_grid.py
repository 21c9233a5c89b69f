"""A grid in which one run breaks: the others are not kept from their work."""

from __future__ import annotations

import pytest
from filelock import FileLock

# Rules are tried on rows of four numbers before anything runs: these pass that and fail in the first round.
BROKEN = """
from smartfl.aggregators import Uniform
from smartfl.errors import UserError

class Broken(Uniform):
    def aggregate(self, updates, server):
        if updates.matrix.shape[1] > 4:
            raise ArithmeticError("the moon is in the wrong house")
        return super().aggregate(updates, server)

class Picky(Uniform):
    def aggregate(self, updates, server):
        if updates.matrix.shape[1] > 4:
            raise UserError("there is no such thing")
        return super().aggregate(updates, server)
"""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_one_broken_run_does_not_stop_the_others(smartfl, tiny_tables, jobs):
    (smartfl.directory / "broken_rule.py").write_text(BROKEN)
    file = smartfl.write(tiny_tables(rounds=1))
    rules = "broken_rule:Broken,fedavg,uniform"
    done = smartfl("compare", file, "--aggregators", rules, "--out", "all", "--jobs", jobs)
    assert done.returncode == 1
    assert "the moon is in the wrong house; 1 of 3 runs failed, the others are done" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    traced = smartfl("--debug", "compare", file, "--aggregators", "broken_rule:Broken", "--out", "all", "--jobs", jobs)
    assert "in aggregate" in traced.stderr  # the line of the user's own rule
    finished = [p.parent.name.rpartition("-")[0] for p in (smartfl.directory / "all").glob("*/result.json")]
    assert sorted(finished) == ["tiny-fedavg", "tiny-uniform"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_wrong_setting_ends_the_grid_at_once(smartfl, tiny_tables, jobs):
    (smartfl.directory / "broken_rule.py").write_text(BROKEN)
    file = smartfl.write(tiny_tables(rounds=1))
    done = smartfl("compare", file, "--aggregators", "broken_rule:Picky,fedavg", "--out", "all", "--jobs", jobs)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no such thing" in done.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_run_that_another_process_took_meanwhile_is_left_to_it(smartfl, tiny_tables, jobs):
    file = smartfl.write(tiny_tables(rounds=1))
    rules = ("compare", file, "--aggregators", "fedavg,uniform,median", "--out", "all", "--jobs", jobs)
    assert smartfl(*rules).returncode == 0
    held = next((smartfl.directory / "all").glob("tiny-uniform-*"))
    with FileLock(held / "lock"):
        done = smartfl(*rules, "--fresh")
    assert done.returncode == 1
    assert "in use by another process; 1 of 3 runs failed, the others are done" in done.stderr
    assert len(list((smartfl.directory / "all").glob("*/result.json"))) == 3
