"""Coefficients of implicit Runge-Kutta methods with many stages."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

Array = NDArray[np.float64]


def gauss_legendre(stages: int) -> tuple[Array, Array, Array]:
    """The Gauss-Legendre method of order ``2 * stages`` on [0, 1]: matrix (stages, stages), weights, nodes (stages,).

    The matrix holds the integrals of the nodes' Lagrange polynomials from 0 to each node. They are expanded in Legendre
    polynomials P_k by the quadrature itself (exact to the degrees needed), and integrated by
    (2k + 1) * int P_k = P_{k+1} - P_{k-1} (DLMF 18.9), which stays accurate for a hundred stages and more.
    """
    points, quadrature = legendre.leggauss(stages)
    values = legendre.legvander(points, stages)  # (stages, stages + 1): P_k at each point
    degrees = np.arange(stages)
    coefficients = (degrees[:, None] + 0.5) * values[:, :stages].T * quadrature  # P_k's share in each polynomial
    before = np.concatenate([-np.ones((stages, 1)), values[:, : stages - 1]], axis=1)  # P_{k-1}; P_{-1} = -1 here
    integrals = (values[:, 1:] - before) / (2 * degrees + 1)
    return integrals @ coefficients / 2, quadrature / 2, (points + 1) / 2
