"""Stands in for upstream's Placement package in osc-placement's own functional tests.

They start a Placement in their own process; this one hands them `kilonova serve` instead.
"""
