"""Reads a subunit stream and prints a line `OUTCOME TEST` for each test; runs in the suites' own Python."""

import sys

import subunit
from testtools import StreamResult


class Printer(StreamResult):
    """Prints the final outcome of each test."""

    def status(self, test_id=None, test_status=None, **_):
        if test_id and test_status not in (None, "exists", "inprogress"):
            print(test_status, test_id)


subunit.ByteStreamToStreamResult(sys.stdin.buffer, non_subunit_name="stdout").run(Printer())
