"""The look of the placement map's SVG: one style sheet for light and dark, and a colour for each model.

No CSS variables: programs that are no browsers (Inkscape, librsvg) do not know them and would draw everything black.
"""

from __future__ import annotations


def _themed(page: str, ink: str, soft: str, line: str, grey: str, alarm: str) -> str:
    """Return the rules that differ between light and dark."""
    return (
        f".page{{fill:{page}}}text{{fill:{ink}}}.small,.closed .name{{fill:{soft}}}.code{{stroke:{page}}}"
        f".cell,.cross,.swatch{{stroke:{line}}}.piece{{stroke:{page}}}.stripe{{fill:{page}}}"
        f".foreign,.unknown{{fill:{grey}}}.dirty{{stroke:{alarm}}}"
    )


STYLE = (
    "text{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px}"
    ".head{font-size:14px;font-weight:600}"
    ".code{font-size:11px;font-weight:600;text-anchor:middle;paint-order:stroke;stroke-width:2px}"
    ".cell,.swatch.dirty{fill:none}.swatch.new{fill:#6ea8fe}.dirty{stroke-width:2.5px}.piece{stroke-width:.5px}"
    ".stripe{opacity:.55}.hatched{fill:url(#hatch)}.cross{stroke-width:2px;fill:none}.closed .card{opacity:.55}"
    + _themed("#fff", "#1f2328", "#59636e", "#8c959f", "#c8ced4", "#cf222e")
    + "@media (prefers-color-scheme:dark){"
    + _themed("#0d1117", "#e6edf3", "#9198a1", "#6e7681", "#7d8590", "#ff7b72")
    + "}"
)

_PALETTE = (
    "#6ea8fe", "#f4a261", "#7bc47f", "#e87ea1", "#e9c46a", "#a99bf0", "#4fc3c7", "#c9a27e", "#a3c96b", "#d98880",
    "#8fb8de", "#d6cf8b",
)
_GOLDEN_ANGLE = 137.508


def color_of(number: int) -> str:
    """Return the colour of the model with a number in the legend: neighbours differ, dark letters are read on it."""
    if number < len(_PALETTE):
        return _PALETTE[number]
    return f"hsl({number * _GOLDEN_ANGLE % 360:.0f},60%,{68 + number % 3 * 6}%)"
