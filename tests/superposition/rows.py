"""Rows as a sweep writes them, made by a law."""

from itertools import product

WIDTHS = (10, 15, 25, 39, 63, 100)


def made(
    laws=("power:1",),
    gammas=(-5 / 9, 1 / 3),
    densities=(1.0,),
    widths=WIDTHS,
    seeds=2,
    n=1000,
    bias="normal",
    readout="dot",
    alpha_m=1.0,
):
    """loss = (1 + seed/10)·E/m^α_m"""
    return [
        {
            "n": n,
            "m": m,
            "law": law,
            "density": density,
            "gamma": gamma,
            "bias": bias,
            "readout": readout,
            "seed": seed,
            "loss": (1 + seed / 10) * density * m**-alpha_m,
            "phi_half": 1.0 if gamma < 0 else m / n,
        }
        for law, gamma, density, seed, m in product(laws, gammas, densities, range(seeds), widths)
    ]
