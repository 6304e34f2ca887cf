"""The order of steps and its decomposition: nothing starts too early, nothing starts later than it must."""

import random
import time
from itertools import pairwise

import pytest

from shared.graph import Await, CycleError, Graph, Parallel, Sequence, Step, decompose, leaves, order_graph
from shared.graph.decompose import MAX_DEPTH, Decomposition
from shared.graph.forest import SITES, cover
from shared.graph.ordering import early


def tree_of(needs, joins=None):
    joins = joins or {}
    graph = order_graph(needs, joins)
    return decompose(graph, {name: needs[name] for name in needs if early(needs[name], joins.get(name, "all"))})


def show(tree):
    """Write a tree in one line: ``a (b | c) d?b d`` where ``d?b`` is d's await on b."""
    match tree:
        case Step(name):
            return name
        case Await(name, sources):
            return f"{name}?{','.join(sources)}"
        case Sequence(items):
            return " ".join(show(item) for item in items)
        case Parallel(branches):
            return "(" + " | ".join(show(branch) for branch in branches) + ")"


def needs_of(text):
    """Read ``a b:a c:a,b`` as needs."""
    pairs = (word.partition(":") for word in text.split())
    return {name: tuple(filter(None, sources.split(","))) for name, _, sources in pairs}


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ("a", "a"),
        ("a b:a c:b", "a b c"),
        ("a b c", "(a | b | c)"),
        ("a b:a c:a d:b,c", "a (b | c) d"),
        ("a b:a c:b d:a,c", "a b c d"),
        ("a b:a c:a d:b,c e:d f:d g:e,f h", "(a (b | c) d (e | f) g | h)"),
        ("a b c:a,b d:a,b", "(a | b) (c | d)"),
        ("a b c:a d:a,b", "(a c | b d?a d)"),
        ("s a:s b:s c:a d:a,b e:c,d", "s (a c | b d?a d) e"),
        ("a b:a c:b d:a e:d,b", "a (b c | d e?b e)"),
    ],
)
def test_shapes(needs, expected):
    assert show(tree_of(needs_of(needs))) == expected


@pytest.mark.parametrize(
    ("needs", "joins", "expected"),
    [
        ("a b c:a,b d:c", {"c": "any"}, "(a | b | c?a,b c d)"),
        ("s a:s b:s c:a,b d:c", {"c": "any"}, "s (a | b | c?a,b c d)"),
        ("a b:a c:b,a", {"c": "any"}, "a (b | c?b,a c)"),
        ("a c:a", {"c": "any"}, "a c"),
        ("s a:s b:s t x:t c:a,b,x", {"c": 2}, "(s (a | b | c?a,b,x c) | t x)"),
    ],
)
def test_early_joins_start_a_chain_of_their_own(needs, joins, expected):
    assert show(tree_of(needs_of(needs), joins)) == expected


def test_cycle_is_named():
    with pytest.raises(CycleError, match="these steps wait for each other") as caught:
        Graph.of({"z": (), "a": ("c", "z"), "b": ("a",), "c": ("b",)})
    assert sorted(caught.value.cycle) == ["a", "b", "c"]


def test_reduction_drops_what_follows_from_others():
    graph = Graph.of(needs_of("a b:a c:a,b d:a,b,c"))
    assert [graph.names_of(mask) for mask in graph.parents] == [(), ("a",), ("b",), ("c",)]


def test_longest_path():
    assert Graph.of(needs_of("a b:a c:b d:a e:c,d")).longest_path() == ("a", "b", "c", "e")


def seeded(seed):
    return random.Random(seed)  # noqa: S311 - graphs, not secrets


def random_needs(rng, size):
    names = [f"s{index}" for index in range(size)]
    density = rng.choice([0.05, 0.15, 0.3, 0.6])
    needs = {
        name: tuple(source for source in names[max(0, index - 12) : index] if rng.random() < density)
        for index, name in enumerate(names)
    }
    joins = {
        name: rng.choice(["any", rng.randint(1, len(sources))])
        for name, sources in needs.items()
        if sources and rng.random() < 0.15
    }
    return needs, joins


def ideal_finish(needs, joins, duration):
    """When each step ends if it starts the moment its own join allows."""
    finish = {}
    for name, sources in needs.items():
        ends = sorted(finish[source] for source in sources)
        join = joins.get(name, "all")
        wanted = len(ends) if join == "all" else 1 if join == "any" else join
        finish[name] = (ends[wanted - 1] if ends else 0) + duration[name]
    return finish


def flatten(tree, before, before_of, apart=()):
    """Record which steps the tree puts directly before each leaf; return the last ones of the tree.

    An await puts its sources before whatever follows it, unless it is that of a step ``apart`` with an early join.
    """
    match tree:
        case Step(name):
            before_of[name] |= before
            return {name}
        case Await(name, sources):
            return before if name in apart else before | set(sources)
        case Sequence(items):
            for item in items:
                before = flatten(item, before, before_of, apart)
            return before
        case Parallel(branches):
            return set().union(*(flatten(branch, before, before_of, apart) for branch in branches))


def tree_finish(tree, needs, joins, duration):
    """When each step ends if the engine does exactly what the tree says; awaits evaluate the join itself."""
    before_of = {name: set() for name in needs}
    apart = {name for name in needs if early(needs[name], joins.get(name, "all"))}
    flatten(tree, set(), before_of, apart)
    parked = {leaf.step: leaf for leaf in leaves(tree) if isinstance(leaf, Await) and leaf.step in apart}
    finish = {}

    def end(name):
        if name not in finish:
            start = max((end(source) for source in before_of[name]), default=0)
            if name in parked:
                ends = sorted(end(source) for source in parked[name].sources)
                join = joins.get(name, "all")
                wanted = len(ends) if join == "all" else 1 if join == "any" else join
                start = max(start, ends[wanted - 1])
            finish[name] = start + duration[name]
        return finish[name]

    return {name: end(name) for name in needs}


@pytest.mark.parametrize("seed", range(300))
def test_random_graphs_start_every_step_exactly_when_it_may(seed):
    rng = seeded(seed)
    needs, joins = random_needs(rng, rng.randint(1, 40))
    tree = tree_of(needs, joins)
    assert sorted(leaf.id for leaf in leaves(tree) if isinstance(leaf, Step)) == sorted(needs)
    for _ in range(3):
        duration = {name: rng.choice([0, 1, 2, 5, 30]) for name in needs}
        assert tree_finish(tree, needs, joins, duration) == ideal_finish(needs, joins, duration)


@pytest.mark.parametrize("seed", range(50))
def test_early_join_starts_its_own_chain(seed):
    rng = seeded(seed)
    needs, joins = random_needs(rng, 30)
    before = {second: first for first, second in pairwise(leaves(tree_of(needs, joins)))}
    for name, join in joins.items():
        if early(needs[name], join):
            assert before[Step(name)] == Await(name, needs[name])


def depth(tree):
    match tree:
        case Sequence(items):
            return max(map(depth, items))
        case Parallel(branches):
            return 1 + max(map(depth, branches))
        case _:
            return 0


def test_deep_nesting_is_laid_flat():
    needs = {"c0": ()}
    for index in range(1, 400):
        needs[f"c{index}"] = (f"c{index - 1}",)
        needs[f"l{index}"] = (f"c{index - 1}",)
    tree = tree_of(needs)
    assert depth(tree) <= MAX_DEPTH + 1
    duration = {name: 1 + len(name) for name in needs}
    assert tree_finish_deep(tree, needs, duration)


def tree_finish_deep(tree, needs, duration):
    ideal = ideal_finish(needs, {}, duration)
    before_of = {name: set() for name in needs}
    flatten(tree, set(), before_of)
    for leaf in leaves(tree):
        if isinstance(leaf, Await):
            before_of[leaf.step] |= set(leaf.sources)
    return all(
        max((ideal[source] for source in before_of[name]), default=0) + duration[name] == ideal[name] for name in needs
    )


def shaped(shape, size):
    if shape == "chain":
        return {f"s{i}": (f"s{i - 1}",) if i else () for i in range(size)}
    if shape == "fan":
        return {f"s{i}": ("s0",) if i else () for i in range(size)}
    if shape == "layers":
        return {f"s{i}": tuple(f"s{j}" for j in range(i - i % 25 - 25, i - i % 25) if j >= 0) for i in range(size)}
    if shape == "sparse":
        near = {i: {i // 2, i - 3, i * 7 % (i + 1)} for i in range(size)}
        return {f"s{i}": tuple(f"s{j}" for j in near[i] if 0 <= j < i) for i in range(size)}
    return {f"s{i}": (f"s{max(0, i - 2 + i % 2)}",) if i else () for i in range(size)}


@pytest.mark.parametrize("shape", ["chain", "fan", "layers", "sparse", "comb"])
def test_four_times_the_steps_take_no_more_than_their_square(shape):
    """A ratio, for machines differ; how many seconds a thousand steps take, the bench says."""

    def seconds(size):
        took = []
        for _ in range(3):  # the best of three: the machine is shared
            begun = time.process_time()
            tree = tree_of(shaped(shape, size))
            took.append(time.process_time() - begun)
        assert sum(isinstance(leaf, Step) for leaf in leaves(tree)) == size
        return min(took)

    assert seconds(1000) < 2 * 4**2 * seconds(250)


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ("a b x:a d:a,b e:a,b f:a,b", "(a x | b d?a (d | e | f))"),
        ("a b c x:a j:b,c k:a,b", "(a x | (b | c) j | k?a,b k)"),
    ],
)
def test_steps_with_the_same_sources_share_an_await(needs, expected):
    assert show(tree_of(needs_of(needs))) == expected


class AlwaysForest(Decomposition):
    """Takes the forest with awaits at one kind of place, even where chains would be cheaper."""

    site = "root"

    def cover(self, block, depth):
        return cover(self.graph, block, self.heads(block), self.alone, self.site)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("seed", range(60))
def test_a_forest_is_exact_wherever_its_awaits_stand(seed, site):
    rng = seeded(5000 + seed)
    needs, joins = random_needs(rng, rng.randint(4, 60))
    parked = {name: needs[name] for name in needs if early(needs[name], joins.get(name, "all"))}
    graph = order_graph(needs, joins)
    forest = type("Forest", (AlwaysForest,), {"site": site})(graph, parked)
    tree = forest.build(graph.everything, 0)
    assert sorted(leaf.id for leaf in leaves(tree) if isinstance(leaf, Step)) == sorted(needs)
    duration = {name: rng.choice([0, 1, 2, 5, 30]) for name in needs}
    assert tree_finish(tree, needs, joins, duration) == ideal_finish(needs, joins, duration)


def test_a_join_without_sources_orders_nothing():
    order = order_graph({"a": (), "b": ("a",), "c": ("b",)}, {"a": "any", "b": "any", "c": 1})
    assert order.ancestors == (0, 1, 3)
