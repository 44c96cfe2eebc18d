"""The benchmark: two plans, and the pages that are made of what they measured."""
