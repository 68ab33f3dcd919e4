"""Relations that no training sees, so that they can be predicted."""

import numpy as np

from horosphere.errors import UserError

SEED = 0  # the same pairs in every run on the same data: geometries and seeds are judged by the same ones


def hold_out(relations: np.ndarray, share: float, nodes: int, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """What is learned and what is held out, in the order they come.   (P, 2) -> (P - H, 2), (H, 2)

    The nodes stay as connected as they were: a random spanning forest of the relations is always learned.
    A relation that goes both ways is held out both ways.

    >>> chain = np.array([(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])  # of four nodes, each below all before it
    >>> learned, held = hold_out(chain, 0.5, nodes=4)
    >>> len(learned), len(held)
    (3, 3)
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    low, high = np.sort(relations, axis=1).T
    links, of = np.unique(low * nodes + high, return_inverse=True)
    random = np.random.default_rng(seed)
    wanted = max(1, round(share * len(links)))
    order = 1.0 + random.permutation(len(links))  # distinct weights: one smallest forest, and a random one
    forest = minimum_spanning_tree(csr_array((order, np.divmod(links, nodes)), shape=(nodes, nodes))).tocoo()
    free = np.setdiff1d(links, forest.row.astype(np.int64) * nodes + forest.col)
    if wanted > len(free):
        most = int(len(free) / len(links) * 1000) / 1000
        how = f"hold out {most:g} or less" if most else "relate nodes to all their ancestors (on=closure)"
        what = f"{len(free):,} of {len(links):,} relations can go without cutting nodes off"
        raise UserError(f"holdout={share:g}: only {what}; {how}")
    gone = np.isin(links, random.choice(free, wanted, replace=False))[of.reshape(-1)]
    return relations[~gone], relations[gone]
