"""Replaces upstream's Placement package in osc-placement's own functional tests.

The tests start a Placement in their own process; this package starts `kilonova serve` instead.
"""
