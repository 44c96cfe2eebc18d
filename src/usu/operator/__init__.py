"""The mathematics: a coarse map's mass, shared out inside cells by scores. No model, no picture file."""
