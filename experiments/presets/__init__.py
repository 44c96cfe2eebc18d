"""How the presets were chosen (on one half of the pictures) and confirmed (on the other). See docs/presets.md."""
