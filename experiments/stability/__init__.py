"""How stable are maps between seeds, how far does one run know it, and is faithfulness paid for it?

    python -m experiments.stability measure STEPS DATA NETWORK docs/results/stability [--pictures N]
    python -m experiments.stability page docs/results/stability docs/stability.md docs/appendix/stability.md

``DATA`` holds the development sets and ``models/load.py``. NETWORK is embedded, resnet50, vgg16_cifar10 or
vit_s14_cifar10. STEP is one of

- seeds: two seeds at 300 evaluations, presets of today and before, faithfulness;
- long: the map of 3,000 evaluations, intervals, ``evaluations="auto"``;
- auto: of these columns the last ones, for what `experiments.renewed` puts into long;
- default: the same with the presets' own ceiling;
- curve: two seeds at 30 to 1,200 evaluations;
- few: 30 to 300 evaluations, with and without the coarse map, kernel SHAP, three approximators of shapiq;
- moved: the picture saved again and shifted by one pixel;
- rivals: other methods at equal or greater cost;
- rise: RISE with 4,000 evaluations;
- choices: other fills and segmenters;
- outlines: AUROC within cells that straddle an outline (pets);
- fast: the preset that asks for no evaluations, against bilinear;
- randomised: maps of the network with its weights shuffled, beside its own;
- softer: `cell` at several temperatures, at even places: two seeds, the picture shifted by a pixel, faithfulness;
- coarser: `cell` at several temperatures where the coarse map has larger cells, at even places;
- fewer: `soft` with few evaluations, with all segments and with larger ones, at even places;
- refined: `soft` with further rounds, and with pieces finer than its groups, at even places.

The steps few and rivals need ``pip install shapiq lightgbm saliency``, which nothing else does.

Pictures are those at odd places of their folders, on which nothing was chosen, if nothing else is said. Each is a row
of ``STEP-NETWORK.csv``, written as soon as it is known; a repeated command goes on. Every output of the network is kept
in memory by the picture's bytes, so a run of 100 evaluations is the beginning of one of 300.
"""
