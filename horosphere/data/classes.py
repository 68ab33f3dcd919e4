"""Classes that are related: they are the leaves of a tree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType

import numpy as np

from horosphere.errors import UserError, one_line
from horosphere.files import write_whole
from horosphere.foreign import Unreadable, printable, read_json

CLASSES = "classes.json"
ROOT = "all classes"  # the name of the root
KNOWN = 3  # classes that a group without a name is known by


@dataclass(frozen=True, eq=False, repr=False)
class ClassTree:
    """A rooted tree of M nodes. Its leaves are the K classes, nodes 0 … K - 1.

    >>> tree = ClassTree.of_groups([0, 0, 1])  # classes 0 and 1 are related, class 2 stands apart
    >>> tree.parents, tree.distances[0]
    (array([ 3,  3,  4,  5,  5, -1]), array([0, 2, 4]))
    """

    parents: np.ndarray  # (M,) int64: the parent of each node, -1 for the root
    classes: int  # K
    names: Sequence[str] | None = None  # of the M - K nodes that are no classes, in their order; none: they have none

    def __post_init__(self) -> None:
        parents = np.asarray(self.parents)
        if parents.ndim != 1 or not np.issubdtype(parents.dtype, np.integer):
            raise UserError(
                f"a tree is a list of parents, whole numbers; this has shape {parents.shape} and type {parents.dtype}."
            )
        parents = parents.astype(np.int64)
        object.__setattr__(self, "parents", parents)
        roots = np.flatnonzero(parents < 0)
        if len(roots) != 1:
            raise UserError(f"the tree has {len(roots)} nodes without a parent (-1): give it one root.")
        nodes = len(parents)
        if (highest := parents.max(initial=-1)) >= nodes:
            raise UserError(
                f"node {parents.argmax()} has parent {highest}, but there are {nodes} nodes. Number them from 0."
            )
        if not 0 < self.classes <= nodes:
            raise UserError(
                f"{self.classes} classes in a tree of {nodes} nodes: the classes are its first nodes, at least one."
            )
        if self.names is not None and len(self.names) != nodes - self.classes:
            raise UserError(
                f"{len(self.names)} names for the {nodes - self.classes} nodes that are no classes: give each one."
            )
        if (inner := parents[(parents >= 0) & (parents < self.classes)]).size:
            raise UserError(
                f"class {inner[0]} is the parent of another node, "
                f"but the classes, nodes 0 to {self.classes - 1}, must be leaves."
            )
        if len(self.depth) and self.depth.min() < 0:
            raise UserError(
                f"node {self.depth.argmin()} does not lead to the root: its ancestors go round in a circle."
            )

    def __repr__(self) -> str:
        return f"ClassTree({self.classes} classes, {len(self.parents)} nodes)"

    @staticmethod
    def of_groups(groups: Sequence[int] | np.ndarray, names: Sequence[str] | None = None) -> ClassTree:
        """Three levels: classes, their groups, a root. groups[k] is the group of class k, numbered from 0.   (K,)

        names: of the groups.
        """
        groups = np.asarray(groups)
        numbers = np.unique(groups)
        if groups.ndim != 1 or groups.dtype.kind not in "iu" or not np.array_equal(numbers, np.arange(len(numbers))):
            raise UserError("groups of classes are a list of whole numbers from 0, without gaps, one for each class.")
        groups = groups.astype(np.int64)
        classes, count = len(groups), len(numbers)
        if names is not None and len(names) != count:
            raise UserError(f"{len(names)} names for {count} groups: give a name for each.")
        parents = np.concatenate([groups + classes, np.full(count, classes + count), [-1]])
        return ClassTree(parents, classes, None if names is None else [*names, ROOT])

    def labels(self, classes: Sequence[str]) -> list[str]:
        """What every node is called, where these are the classes. A group without a name is known by its classes.

        >>> ClassTree.of_groups([0, 0, 1], ["plants", "animals"]).labels(["oak", "fir", "cat"])
        ['oak', 'fir', 'cat', 'plants', 'animals', 'all classes']
        >>> ClassTree.of_groups([0, 0, 1]).labels(["oak", "fir", "cat"])[3:]
        ['oak, fir', 'of cat', 'all classes']
        """
        if self.names is not None:
            return [*classes, *self.names]
        below: list[list[str]] = [[] for _ in self.parents]
        for number, name in enumerate(classes):
            node = self.parents[number]
            while node >= 0:
                below[node].append(name)
                node = self.parents[node]
        return [*classes, *map(self._known_by, below[self.classes :])]

    def _known_by(self, names: Sequence[str]) -> str:
        if len(names) == self.classes:
            return ROOT
        return ", ".join([*names[:KNOWN], "…"][: len(names)]) if len(names) > 1 else f"of {names[0]}"

    @cached_property
    def depth(self) -> np.ndarray:
        """Edges to the root; -1 where there is no way.   -> (M,)"""
        above = np.where(self.parents < 0, np.arange(len(self.parents)), self.parents)  # the root stays where it is
        depth = (self.parents >= 0).astype(np.int64)
        for _ in range(len(self.parents).bit_length()):  # each time twice as far up
            depth, above = depth + depth[above], above[above]
        return np.where(self.parents[above] < 0, depth, -1)

    @cached_property
    def height(self) -> np.ndarray:
        """Edges down to the farthest node below.   -> (M,)

        >>> ClassTree.of_groups([0, 0, 1]).height
        array([0, 0, 0, 1, 1, 2])
        """
        height = np.zeros(len(self.parents), dtype=np.int64)
        for node in np.argsort(-self.depth)[:-1]:  # the deepest first, without the root
            height[self.parents[node]] = max(height[self.parents[node]], height[node] + 1)
        return height

    @cached_property
    def common(self) -> np.ndarray:
        """The last ancestor that two classes share; of a class and itself the class.   -> (K, K) nodes

        >>> ClassTree.of_groups([0, 0, 1]).common[0]
        array([0, 3, 5])
        """
        on_path = np.zeros((self.classes, len(self.parents)), dtype=np.float32)
        paths = np.zeros((self.classes, self.depth.max() + 1), dtype=np.int64)  # from the root down
        node = np.arange(self.classes)
        while (node >= 0).any():
            at = np.flatnonzero(node >= 0)
            on_path[at, node[at]] = 1
            paths[at, self.depth[node[at]]] = node[at]
            node = np.where(node >= 0, self.parents[node], -1)
        shared = (on_path @ on_path.T).astype(np.int64) - 1  # edges from the root that two paths have in common
        return np.take_along_axis(paths, shared, 1)

    @cached_property
    def distances(self) -> np.ndarray:
        """Edges between classes: depth_a + depth_b - 2·(depth of the last ancestor they share).   -> (K, K) int64"""
        depth = self.depth[: self.classes]
        return depth[:, None] + depth[None, :] - 2 * self.depth[self.common]


# -- beside a trained model -------------------------------------------------------------------------------------------


def write_classes(folder: Path, classes: Sequence[str], tree: ClassTree | None = None) -> None:
    parents = None if tree is None else tree.parents.tolist()
    names = None if tree is None or tree.names is None else list(tree.names)
    write_whole(folder / CLASSES, json.dumps({"classes": list(classes), "parents": parents, "groups": names}).encode())


def read_classes(folder: Path) -> tuple[list[str], ClassTree | None]:
    file = folder / CLASSES
    try:
        content = read_json(file)
        classes, parents, names = (content.get(key) for key in ("classes", "parents", "groups"))
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
            raise Unreadable("it has no list of names")
        if not isinstance(parents, (list, NoneType)):
            raise Unreadable("its parents are no list")
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise Unreadable("its groups are no list of names")
        called = None if names is None else [printable(name) for name in names]
        tree = None if parents is None else ClassTree(np.array(parents), len(classes), called)
        return [printable(name) for name in classes], tree
    except (UserError, ValueError) as error:
        raise UserError(f"{file}: a damaged file ({one_line(error)}); train the model again") from error
