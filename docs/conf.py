"""The site: `make docs`. Everything it needs is on this machine; the pages load nothing from elsewhere."""

from __future__ import annotations

import re
from typing import Any

import usu

project = "usu-xai"
author = "The usu-xai developers"
project_copyright = f"{author}, Apache-2.0"
version = release = usu.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "results", "notebooks/*.md"]

myst_enable_extensions = ["attrs_block", "attrs_inline", "dollarmath"]
myst_heading_anchors = 3
copybutton_prompt_text = ">>> |\\$ "
copybutton_prompt_is_regexp = True

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
napoleon_custom_sections = ["Guarantees"]
napoleon_numpy_docstring = False
default_role = "py:obj"
# one word in backticks is code, whether it has a page or not
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"usu-xai {release}"
html_static_path = ["_static"]
html_css_files = ["usu.css"]
html_theme_options = {"navigation_with_keys": True}
html_show_sourcelink = False
html_math_renderer = "mathml"


def _mathml(self: Any, node: Any, block: bool) -> None:
    """Formulas as MathML, which every browser draws by itself."""
    from docutils import nodes
    from docutils.utils.math.latex2mathml import tex2mathml

    written = tex2mathml(node.astext(), as_block=block)
    self.body.append(f'<div class="math">{written}</div>' if block else written)
    raise nodes.SkipNode


_comments: dict[str, list[str]] = {}


def _plain(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings write |x| and A* and mean it: outside of code these are signs, not markup."""
    example = False
    for place, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if not example:
            parts = line.split("``")
            parts[::2] = [part.replace("|", r"\|").replace("*", r"\*") for part in parts[::2]]
            lines[place] = "``".join(parts)
    if what == "attribute":
        _comments[name] = [*lines]


def _kept(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """The comment of an attribute as it is: napoleon takes the words before a colon for its type."""
    lines[:] = _comments.pop(name, lines)


def _named(app: Any, doctree: Any) -> None:
    """A type among literals keeps its tilde and its path; a reader wants the name."""
    from docutils import nodes

    for text in [text for text in doctree.findall(nodes.Text) if "~usu." in text]:
        text.parent.replace(text, nodes.Text(re.sub(r"~[\w.]+\.(\w+)", r"\1", text)))


def setup(app: Any) -> None:
    """Sphinx calls it."""
    app.connect("doctree-read", _named)
    app.connect("autodoc-process-docstring", _plain, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", _kept, priority=900)  # after it
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda self, node: _mathml(self, node, False), None),
        block_renderers=(lambda self, node: _mathml(self, node, True), None),
    )
