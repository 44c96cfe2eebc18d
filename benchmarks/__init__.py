"""Measurements that need a quiet machine: ratios inside one run, never a test."""
