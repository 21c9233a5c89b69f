"""How a method is drawn: alike in every figure, and unlike every other line of its figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Chosen so that two lines of one dash differ under protanopia, deuteranopia and tritanopia too.
COLOURS = {
    "blue": "#0063a8", "orange": "#d55e00", "green": "#009e73", "grey": "#7f8893", "wine": "#882255",
    "ink": "#18212b", "amber": "#e08e00", "magenta": "#b0308a", "sky": "#45a6dd", "brown": "#7c4a1e",
    "olive": "#8a8a1f", "rose": "#cc6677", "pink": "#cc6fa5",
}  # fmt: skip
DASHES = ("-", "--", "-.", ":")
MARKERS = "osDv^d<>*pPhX"
SIZES = {"*": 9.5, "P": 7.5, "X": 7.0, "d": 7.0}  # these cover less than the others of 6 points
OURS = "smartfl"


@dataclass(frozen=True)
class Look:
    """A line: a key of ``COLOURS``, a dash and a marker; dash and marker alone tell lines apart in greyscale."""

    colour: str
    dash: str
    marker: str

    @property
    def hex(self) -> str:
        return COLOURS[self.colour]

    @property
    def size(self) -> float:
        return SIZES.get(self.marker, 6.0)


KNOWN = {
    OURS: Look("blue", "-", "o"),
    "smartfl_literal": Look("orange", "-", "s"),
    "literal": Look("orange", "-", "s"),
    "forgetful": Look("sky", "--", "^"),
    "smartfl_u": Look("green", "-", "D"),
    "smartfl_u_literal": Look("magenta", "--", "d"),
    "fedavg": Look("grey", "-", "v"),
    "uniform": Look("brown", "--", "<"),
    "fedprox": Look("rose", "-.", "P"),
    "scaffold": Look("wine", ":", "*"),
    "feddf": Look("olive", "-.", "p"),
    "fedbe": Look("amber", ":", "h"),
    "median": Look("amber", "-.", "d"),
    "krum": Look("rose", "--", "*"),
    "trimmed_mean": Look("sky", "-.", "^"),
    "dnc": Look("magenta", ":", "p"),
    "abavg": Look("pink", "-.", ">"),
    "finetune": Look("ink", "-", "X"),
    "sageflow": Look("magenta", "-.", "D"),
    "fltrust": Look("wine", "-", "P"),
}


def _spare() -> list[Look]:
    """Looks that no known method has: of each dash its free colours, each with a free marker; then other markers."""
    free = {}
    for dash in DASHES:
        same = [look for look in KNOWN.values() if look.dash == dash]
        colours = [c for c in COLOURS if c not in {look.colour for look in same}]
        free[dash] = colours, [m for m in MARKERS if m not in {look.marker for look in same}]
    turns = min(len(markers) for _, markers in free.values())
    return [
        Look(colour, dash, markers[(k + turn) % len(markers)])
        for turn in range(turns)
        for dash, (colours, markers) in free.items()
        for k, colour in enumerate(colours)
    ]


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """The look of each of a study's methods: the known one, or a spare one, in a colour of its own while there are any.

    Pass all methods of the study, not those shown: then a method looks the same however many others are left out.
    """
    found: dict[str, Look] = {}
    others = []
    for method in methods:
        known = KNOWN.get(method)
        if known is None or known in found.values():
            others.append(method)
        else:
            found[method] = known
    spare = _spare()
    for method in others:
        colours = {look.colour for look in found.values()}
        found[method] = next((look for look in spare if look.colour not in colours), spare[0])
        spare.remove(found[method])
    return found
