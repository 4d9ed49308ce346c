"""docs/errors.md lists the code and the fix of every error, and a traceback has them."""

import pickle
import re
import traceback

import pytest

from cluster import errors
from cluster.errors import ClusterError, DataLoss, LogPurged
from cluster.transport.log_client import Unreachable
from tests.tree import ROOT

PAGE = (ROOT / "docs" / "errors.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)` \| `\w+` \| (.+) \|$", PAGE, re.MULTILINE))


def classes():
    kinds = (kind for kind in vars(errors).values() if isinstance(kind, type))
    return [*(kind for kind in kinds if issubclass(kind, ClusterError)), Unreachable]


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_the_page_has_the_code_and_the_fix_of_each_class(kind):
    assert "code" in vars(kind) and "fix" in vars(kind), "its own"
    assert re.fullmatch(r"CLUSTER(_[A-Z]+)+", kind.code)
    assert f"| `{kind.code}` | `{kind.__name__}` | {kind.fix} |\n" in PAGE


def test_codes_are_each_of_one_class_and_the_page_has_no_other():
    codes = [kind.code for kind in classes()]
    assert len(set(codes)) == len(codes)
    assert sorted(codes) == sorted(ROWS)


def test_a_traceback_has_them_below_the_line_which_stays_alone():
    error = LogPurged("the log begins at 96", 96)
    assert str(error) == "the log begins at 96"
    assert traceback.format_exception(error) == [
        "cluster.errors.LogPurged: the log begins at 96\n",
        f"[CLUSTER_LOG_PURGED] {LogPurged.fix}\n",
    ]


def test_an_error_that_went_to_another_process_has_them_once():
    again = pickle.loads(pickle.dumps(DataLoss("gone")))
    assert again.__notes__ == [f"[CLUSTER_DATA_LOSS] {DataLoss.fix}"]


def test_a_class_of_a_users_own_has_the_code_above_it():
    class Mine(DataLoss):
        pass

    assert Mine("gone").code == "CLUSTER_DATA_LOSS"
    assert issubclass(Mine, ClusterError)
