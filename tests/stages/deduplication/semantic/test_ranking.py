"""Which document of a cluster is preferred."""

import numpy as np
import pytest

from gristmill.stages.deduplication.semantic.identify import survivors
from gristmill.stages.deduplication.semantic.ranking import ranked

ROW = np.array([10, 11, 12, 13])
DISTANCE = np.array([0.2, 0.5, 0.1, 0.5])
SCORE = np.array([3.0, np.nan, 7.0, 3.0])


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        ("hard", [11, 13, 10, 12]),
        ("easy", [12, 10, 11, 13]),
        ("first", [10, 11, 12, 13]),
        ("best", [12, 10, 13, 11]),
        ("longest", [12, 10, 13, 11]),
    ],
)
def test_policies_order_a_cluster_and_equals_keep_the_order_of_the_input(policy, rows):
    assert ROW[ranked(policy, ROW, DISTANCE, SCORE)].tolist() == rows
    turned = slice(None, None, -1)
    assert ROW[turned][ranked(policy, ROW[turned], DISTANCE[turned], SCORE[turned])].tolist() == rows


def test_a_survivor_is_found_through_a_chain_of_duplicates():
    #                0   1  2  3  4  5
    best = np.array([-1, 0, 1, 0, 3, 2])
    removed = np.array([False, True, True, False, True, True])
    assert survivors(best, removed).tolist() == [0, 0, 0, 3, 3, 0]
