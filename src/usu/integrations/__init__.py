"""Other libraries, one file per third party; nothing here is imported before it is asked for.

In all of them ``preset`` is that of `usu.upsample` (None is ``"cell"``; for maps that are scaled to be
looked at, ``"soft"``) or a `usu.Settings`, ``evaluations`` the most
model evaluations per picture (and layer), ``image`` (B, C, H, W) what the model takes, and ``picture`` (B, H, W, 3) in
[0, 1] what the segmenter sees, made from the image by min-max if absent.
"""
