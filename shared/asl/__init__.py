"""The Amazon States Language room: typed states, from tree and manifest to states, from states to text."""

from shared.asl.emit import emit
from shared.asl.fold import fold
from shared.asl.jumps import Switch, place_jumps
from shared.asl.layout import Layout
from shared.asl.limits import Measures, measure
from shared.asl.render import render, to_json
from shared.asl.unwind import unwind_machine

__all__ = [
    "Layout",
    "Measures",
    "Switch",
    "emit",
    "fold",
    "measure",
    "place_jumps",
    "render",
    "to_json",
    "unwind_machine",
]
