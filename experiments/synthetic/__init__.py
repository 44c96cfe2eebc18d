"""The controlled study: pictures whose reasons are known, and models that were trained to use them.

Run: python -m experiments.synthetic [--quick] [--out DIR]
"""
