#!/usr/bin/env python3
"""Counts the tests that were skipped because the machine cannot run them. The harness reports them as passed.

    scripts/skips.py JUNIT.XML FILE FLAKY

Such a test prints `skipped: REASON` (`kilonova_testkit::skip`). Prints each reason, the number of tests that gave it
and one of them, and writes the number of skipped tests to FILE. A test that left out a part, such as one of the
databases, prints `skipped in part: REASON`; the reason is printed, and the test counts as passed.

Writes the tests that failed and then passed to FLAKY, each with where and why it panicked.
"""

import collections
import re
import sys
import xml.etree.ElementTree as tree

LINE = re.compile(r"^(skipped|skipped in part): (.*)$", re.MULTILINE)


def failure(part):
    """The panic of a failed attempt: its place and message, without the backtrace."""
    lines = "\n".join(part.itertext()).splitlines()
    starts = [number for number, line in enumerate(lines) if "panicked at" in line]
    return [line[:300] for line in lines[starts[0] : starts[0] + 2]] if starts else lines[:6]


def main():
    reasons, idle, flaky = collections.defaultdict(list), 0, []
    for case in tree.parse(sys.argv[1]).iter("testcase"):
        output = "\n".join(part.text or "" for part in case if part.tag in ("system-out", "system-err"))
        found = set(LINE.findall(output))
        for line in found:
            reasons[line].append(f"{case.get('classname')} {case.get('name')}")
        for part in case.iter("flakyFailure"):
            flaky += [f"{case.get('classname')} {case.get('name')}", *(f"    {line}" for line in failure(part))]
        idle += any(kind == "skipped" for kind, _ in found)
    for (kind, why), tests in sorted(reasons.items()):
        print(f"{kind}: {why} ({len(tests)} tests, such as {tests[0]})")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(f"{idle}\n")
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in flaky)


if __name__ == "__main__":
    sys.exit(main())
