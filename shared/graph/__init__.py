"""The graph room: the immutable order of a workflow's steps, and its decomposition into sequence and parallel.

Pure and free of everything else in Signalbox: names in, a frozen tree out.
"""

from shared.graph.dag import CycleError, Graph
from shared.graph.decompose import decompose
from shared.graph.ordering import order_graph
from shared.graph.tree import Await, Parallel, Sequence, Step, Tree, awaits, leaves

__all__ = [
    "Await",
    "CycleError",
    "Graph",
    "Parallel",
    "Sequence",
    "Step",
    "Tree",
    "awaits",
    "decompose",
    "leaves",
    "order_graph",
]
