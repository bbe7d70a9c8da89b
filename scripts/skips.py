#!/usr/bin/env python3
"""Tests that passed without having looked at anything, as they said `skipped: WHY` themselves.

    scripts/skips.py JUNIT.XML FILE

Prints each reason with how many tests gave it and one of them, and writes the number of tests to FILE. A test that
only left one of its databases out is told, and counts as passed: it has looked at the other.
"""

import collections
import re
import sys
import xml.etree.ElementTree as tree

LINE = re.compile(r"^skipped: (.*)$", re.MULTILINE)
# Of a test that has done the rest of its work.
PARTLY = "PostgreSQL;"


def main():
    reasons, idle = collections.defaultdict(list), 0
    for case in tree.parse(sys.argv[1]).iter("testcase"):
        said = "\n".join(part.text or "" for part in case if part.tag in ("system-out", "system-err"))
        found = set(LINE.findall(said))
        for why in found:
            reasons[why].append(f"{case.get('classname')} {case.get('name')}")
        idle += any(not why.startswith(PARTLY) for why in found)
    for why, tests in sorted(reasons.items()):
        print(f"skipped: {why} ({len(tests)} tests, such as {tests[0]})")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(f"{idle}\n")


if __name__ == "__main__":
    sys.exit(main())
