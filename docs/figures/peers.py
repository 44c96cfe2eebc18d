"""The figure of docs/peers.md: python docs/figures/peers.py"""

from __future__ import annotations

import sys

from style import BLUE, GREY, HERE, INK, RESULTS, chart, save, tidy

sys.path.insert(0, str(HERE.parents[1]))

from experiments.costs import FAITHFUL, TWINS, frontier, joined, rows_of

SHOWN = {FAITHFUL[0]: "insertion minus deletion, mean fill", FAITHFUL[3]: "half deletion, noise fill"}


def main() -> None:
    """Faithfulness over seconds; the line joins those that nobody cheaper is as good as."""
    tables = [rows_of(RESULTS / f"peers-{name}.csv") for name in ("cost", "pictures")]
    rows = [row for row in joined(*tables) if not row[0].endswith("engine auto")]
    canvas = chart(9.5, 4.2)
    for place, (metric, title) in enumerate(SHOWN.items()):
        axes = canvas.add_subplot(1, len(SHOWN), place + 1)
        # pytorch-grad-cam's Grad-CAM is the map of ours, resized: one mark would hide the other
        known = {name: found for name, found in rows if found[metric] is not None and name not in TWINS}
        best = [known[name] for name in frontier([row for row in rows if row[0] not in TWINS], metric)]
        axes.step([f["seconds"] for f in best], [f[metric] for f in best], where="post", color=INK, linewidth=0.8)
        for name, found in known.items():
            own = name.startswith("usu")
            axes.plot(found["seconds"], found[metric], "o" if own else "s", color=BLUE if own else GREY, markersize=5)
            short = name.removeprefix("pytorch-grad-cam ").removeprefix("Captum ").removeprefix("usu ")
            axes.annotate(short, (found["seconds"], found[metric]), xytext=(3, 3), textcoords="offset points",
                          fontsize=6.5, color=BLUE if own else INK)  # fmt: skip
        axes.set(xscale="log", xlabel="seconds, one thread", title=title)
        axes.title.set_fontsize(10)
        tidy(axes)
    save(canvas, "peers")


if __name__ == "__main__":
    main()
