"""The colours of all pictures: Okabe and Ito's, which the colour-blind can tell apart.

Source: Okabe and Ito 2008, Color Universal Design. Vermilion is kept for what is bad (worse, a
preemption); series take the others in order. A second sign (marker, line style, label) always
repeats what a colour says.
"""

BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"
VERMILION, BLACK = "#D55E00", "#000000"
GREY, LIGHT_GREY = "#777777", "#dddddd"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P")
LINE_STYLES = ("-", "--", "-.", ":")


def colour_of(k: int) -> str:
    """Return the colour of series k >= 0; they repeat from the seventh on."""
    return SERIES[k % len(SERIES)]


def marker_of(k: int) -> str:
    """Return the marker of series k; shifted in every round, so that 36 series differ."""
    return MARKERS[(k + k // len(SERIES)) % len(MARKERS)]


def line_style_of(k: int) -> str:
    """Return the line style of series k; it changes when the colours start again."""
    return LINE_STYLES[k // len(SERIES) % len(LINE_STYLES)]
