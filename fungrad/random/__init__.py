"""Random numbers, with JAX's names, arguments and bits.

A key is a uint32 array of shape (2,). Functions of a key are pure: equal keys give equal numbers, so split a key before
each use. Bits, `split`, `fold_in`, `randint` and `uniform` in [0, 1) agree with JAX's default generator (threefry2x32,
partitionable) bit by bit; the other distributions follow its formulas (`jax/_src/random`) and agree up to rounding.
"""
from .basic import bernoulli, rademacher, randint, uniform
from .choosing import categorical, choice, permutation
from .continuous import (
                         cauchy,
                         double_sided_maxwell,
                         exponential,
                         geometric,
                         gumbel,
                         laplace,
                         logistic,
                         lognormal,
                         maxwell,
                         normal,
                         orthogonal,
                         pareto,
                         rayleigh,
                         triangular,
                         truncated_normal,
                         wald,
                         weibull_min,
)
from .keys import PRNGKey, bits, clone, fold_in, key, key_data, split, wrap_key_data
from .rejection import ball, beta, chisquare, dirichlet, f, gamma, generalized_normal, loggamma, poisson, t

__all__ = [
    "PRNGKey", "ball", "bernoulli", "beta", "bits", "categorical", "cauchy", "chisquare", "choice", "clone",
    "dirichlet", "double_sided_maxwell", "exponential", "f", "fold_in", "gamma", "generalized_normal", "geometric",
    "gumbel", "key", "key_data", "laplace", "loggamma", "logistic", "lognormal", "maxwell", "normal", "orthogonal",
    "pareto", "permutation", "poisson", "rademacher", "randint", "rayleigh", "split", "t", "triangular",
    "truncated_normal", "uniform", "wald", "weibull_min", "wrap_key_data",
]
