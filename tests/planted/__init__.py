"""Planted defects: how strong the tests are. `defects` has the list, ``python -m tests.planted`` runs it."""
