"""How long a backtracking matcher may take on a parsed regular expression.

Guarantees: pure and bounded; says "exponential" for every expression whose loops can be walked in two ways
over one text, and otherwise never less than the true power of the text's length. It may say too much.

The expression's position automaton has a state for every set of characters in it and an edge wherever one may
follow another. Repeats that are counted are written out where that is exact and small, and taken for endless
loops otherwise, which can only make the answer worse.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from attrs import field, frozen

MAX_CODE: Final = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]
"""Sets of code points: disjoint ascending pairs, both ends included."""

_MAX_POSITIONS: Final = 400
_MAX_PAIRS: Final = 20_000
_ENDLESS: Final = 1_000
_UNROLLED: Final = 3


@frozen
class Chars:
    """One character out of a set."""

    ranges: Ranges


@frozen
class Sequence:
    """One after the other; empty matches the empty text."""

    items: tuple[Node, ...]


@frozen
class Alternatives:
    """One of several."""

    options: tuple[Node, ...]


@frozen
class Loop:
    """``low`` to ``high`` times; ``high`` None is without end."""

    inner: Node
    low: int
    high: int | None
    is_lazy: bool


@frozen
class Assertion:
    """A position: matched without taking a character; ``inner`` is what a look-around looks for."""

    text: str
    inner: Node | None = None


Node = Chars | Sequence | Alternatives | Loop | Assertion


class _TooManyPositions(Exception):  # noqa: N818 - control flow, never leaves this module
    pass


@frozen
class _Part:
    is_nullable: bool
    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()


class _Automaton:
    """Positions and counted edges. An edge that two operators make is there twice: two ways to walk it."""

    def __init__(self) -> None:
        self.sets: list[Ranges] = []
        self.edges: Counter[tuple[int, int]] = Counter()
        self.lookarounds: list[Node] = []
        self.is_unrolling = False
        self.is_exponential = False

    def add(self, node: Node) -> _Part:
        match node:
            case Chars(ranges):
                if len(self.sets) >= _MAX_POSITIONS:
                    raise _TooManyPositions
                self.sets.append(ranges)
                here = (len(self.sets) - 1,)
                return _Part(is_nullable=False, first=here, last=here)
            case Sequence(items):
                part = _Part(is_nullable=True)
                for item in items:
                    part = self.joined(part, self.add(item))
                return part
            case Alternatives(options):
                parts = [self.add(option) for option in options]
                return _Part(
                    any(part.is_nullable for part in parts),
                    tuple(p for part in parts for p in part.first),
                    tuple(p for part in parts for p in part.last),
                )
            case Loop():
                return self.loop(node)
            case Assertion(_, inner):
                if inner is not None:
                    self.lookarounds.append(inner)
                return _Part(is_nullable=True)

    def joined(self, left: _Part, right: _Part) -> _Part:
        self.edges.update((p, q) for p in left.last for q in right.first)
        return _Part(
            left.is_nullable and right.is_nullable,
            left.first + right.first if left.is_nullable else left.first,
            left.last + right.last if right.is_nullable else right.last,
        )

    def loop(self, node: Loop) -> _Part:
        high = node.high
        if high is not None and (high <= 1 or _is_plain(node) or (high <= _UNROLLED and not self.is_unrolling)):
            outer, self.is_unrolling = self.is_unrolling, self.is_unrolling or high > 1
            part = _Part(is_nullable=True)
            for number in range(high):
                copy = self.add(node.inner)
                if number >= node.low:
                    copy = _Part(is_nullable=True, first=copy.first, last=copy.last)
                part = self.joined(part, copy)
            self.is_unrolling = outer
            return part
        part = self.add(node.inner)
        if part.is_nullable and max(node.low, high or 0) > 1:
            self.is_exponential = True  # (a?){30}: which of the thirty rounds are empty is a choice of its own
        self.edges.update((p, q) for p in part.last for q in part.first)
        return _Part(part.is_nullable or node.low == 0, part.first, part.last)


def _is_plain(node: Node) -> bool:
    """True for what can match a text in one way only: characters, in a row, repeated a fixed number of times."""
    match node:
        case Chars():
            return True
        case Sequence(items):
            return all(map(_is_plain, items))
        case Loop(inner, low, high, _):
            return low == high and low <= _MAX_POSITIONS and _is_plain(inner)
        case _:
            return False


def _intersects(left: Ranges, right: Ranges) -> bool:
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i][1] < right[j][0]:
            i += 1
        elif right[j][1] < left[i][0]:
            j += 1
        else:
            return True
    return False


def degree_of(node: Node, *, is_anchored: bool = False) -> int | None:
    """Return the power of the text's length that matching may take, 0 for none; None when it is exponential.

    ``is_anchored`` says that matching starts in one place; otherwise that is read off a ``^`` at the front.
    """
    items: list[Node] = list(node.items) if isinstance(node, Sequence) else [node]
    powers = [0]
    while items and isinstance(first := items[0], Assertion):
        del items[0]
        is_anchored |= first.text == "^"
        if first.inner is not None:
            powers.append(_or_endless(degree_of(first.inner, is_anchored=True)))
    is_anchored |= bool(items) and _is_anchored(items[0])
    powers.append(_or_endless(_degree_behind(_without_tail(items))))
    degree = max(powers)
    if degree >= _ENDLESS:
        return None
    return degree + 1 if degree and not is_anchored else degree


def _or_endless(degree: int | None) -> int:
    return _ENDLESS if degree is None else degree


def _degree_behind(node: Node) -> int | None:
    """The same for an expression that is tried in one place, its look-arounds counted wherever they stand."""
    automaton = _Automaton()
    try:
        automaton.add(node)
    except _TooManyPositions:
        return _crude_degree(node)
    graph = _Graph(automaton)
    if automaton.is_exponential or graph.is_exponential():
        return None
    degree = graph.longest_chain()
    for inner in automaton.lookarounds:
        below = degree_of(inner, is_anchored=True)
        if below is None:
            return None
        degree += below + 1
    return degree


def _without_tail(items: list[Node]) -> Node:
    """Return the expression without the repeats at its end that cannot fail: what they match is a match already."""
    while items:
        last = items.pop()
        if not isinstance(last, Loop) or not isinstance(last.inner, Chars):
            items.append(last)
            break
        if last.low:
            items.append(Loop(last.inner, last.low, last.low, last.is_lazy))
            break
    return Sequence(tuple(items))


def _is_anchored(node: Node) -> bool:
    match node:
        case Assertion(text, None):
            return text == "^"
        case Sequence(items):
            return bool(items) and _is_anchored(items[0])
        case Alternatives(options):
            return all(map(_is_anchored, options))
        case _:
            return False


def _crude_degree(node: Node, *, is_inside: bool = False) -> int | None:
    """The same for an expression too large for the automaton: loops in loops are exponential, others add up."""
    match node:
        case Loop(inner, _, high, _):
            is_loop = high is None or high > 1
            if is_loop and is_inside:
                return None
            below = _crude_degree(inner, is_inside=is_inside or is_loop)
            return None if below is None else below + is_loop
        case Sequence(children) | Alternatives(children):
            total = 0
            for child in children:
                below = _crude_degree(child, is_inside=is_inside)
                if below is None:
                    return None
                total += below
            return total
        case Assertion(_, inner) if inner is not None:
            return _crude_degree(inner, is_inside=is_inside)
        case _:
            return 0


@frozen(init=False, eq=False)
class _Graph:
    sets: list[Ranges]
    edges: Counter[tuple[int, int]]
    next: list[list[int]]
    component: list[int] = field()

    def __init__(self, automaton: _Automaton) -> None:
        count = len(automaton.sets)
        following: list[list[int]] = [[] for _ in range(count)]
        for p, q in automaton.edges:
            following[p].append(q)
        self.__attrs_init__(automaton.sets, automaton.edges, following, _components(following))

    def is_exponential(self) -> bool:
        component, following = self.component, self.next
        if any(n > 1 and component[p] == component[q] for (p, q), n in self.edges.items()):
            return True
        reached = {(p, p) for p in range(len(self.sets))}
        queue = list(reached)
        back: dict[tuple[int, int], list[tuple[int, int]]] = {}
        while queue:
            pair = queue.pop()
            p, q = pair
            for r in following[p]:
                if component[r] != component[p]:
                    continue
                for s in following[q]:
                    if component[s] != component[p] or not _intersects(self.sets[r], self.sets[s]):
                        continue
                    back.setdefault((r, s), []).append(pair)
                    if (r, s) not in reached:
                        if len(reached) > _MAX_PAIRS:
                            return True
                        reached.add((r, s))
                        queue.append((r, s))
        queue = [(p, p) for p in range(len(self.sets))]
        seen = set(queue)
        while queue:
            for pair in back.get(queue.pop(), ()):
                if pair[0] != pair[1]:
                    return True
                if pair not in seen:
                    seen.add(pair)
                    queue.append(pair)
        return False

    def longest_chain(self) -> int:
        """Return the longest row of loops in which each can take the text of the one before."""
        loops: dict[int, list[int]] = {}
        for p, q in self.edges:
            if self.component[p] == self.component[q]:
                loops.setdefault(self.component[p], []).append(p)
        lengths: dict[int, int] = {}
        for name in sorted(loops):  # _components numbers a component after everything it leads to
            longest = 0
            for later in self._overlapped_by(name, loops):
                longest = max(longest, lengths[later])
            lengths[name] = longest + 1
        return max(lengths.values(), default=0)

    def _overlapped_by(self, name: int, loops: dict[int, list[int]]) -> set[int]:
        letters = [self.sets[p] for p in loops[name]]
        queue, seen, found = list(loops[name]), set(loops[name]), set()
        while queue:
            for q in self.next[queue.pop()]:
                if q in seen or not any(_intersects(self.sets[q], own) for own in letters):
                    continue
                seen.add(q)
                queue.append(q)
                if self.component[q] != name and self.component[q] in loops:
                    found.add(self.component[q])
        return found


def _components(following: list[list[int]]) -> list[int]:
    """Return the number of each state's strongly connected component (Tarjan, without recursion)."""
    count = len(following)
    index, low, component = [-1] * count, [0] * count, [-1] * count
    stack: list[int] = []
    counter = found = 0
    for root in range(count):
        if index[root] >= 0:
            continue
        work = [(root, 0)]
        while work:
            state, edge = work.pop()
            if edge == 0:
                index[state] = low[state] = counter
                counter += 1
                stack.append(state)
            else:
                low[state] = min(low[state], low[following[state][edge - 1]])
            for position in range(edge, len(following[state])):
                target = following[state][position]
                if index[target] < 0:
                    work.append((state, position + 1))
                    work.append((target, 0))
                    break
                if component[target] < 0:
                    low[state] = min(low[state], index[target])
            else:
                if low[state] == index[state]:
                    while True:
                        member = stack.pop()
                        component[member] = found
                        if member == state:
                            break
                    found += 1
    return component
