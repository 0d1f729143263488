"""The laws of the transforms on random programs, and on functions of the front ends."""
from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fungrad
import fungrad.numpy as fnp
from fungrad import dtypes, lax, nn, random
from fungrad.errors import RefusedError
from fungrad.testing import laws, strategies
from fungrad.testing.gradcheck import check_grads, check_jit, check_vmap
from fungrad.testing.program_steps import STEPS
from fungrad.testing.programs import build
from tests.laws.profiles import law

# Steps whose results jump where their operands do not, so that rounding decides.
SMOOTH = [name for name in STEPS if name not in ("cast", "random", "create")]
TYPES = st.sampled_from([dtypes.float64] * 4 + [dtypes.int32, dtypes.bool_])


@law(15)
@given(strategies.recipes(max_steps=4, kinds=SMOOTH, types=TYPES), st.integers(0, 99))
def test_words_of_three_transforms(recipe, seed):
    """On the reference device, which compiles nothing: 84 words a program."""
    with fungrad.settings(device="reference"), np.errstate(all="ignore"):
        generated = build(recipe)
        with contextlib.suppress(RefusedError):   # what has no derivative says so
            laws.check_transforms(generated.function, generated.arrays(seed)[:len(recipe.input_types)], seed=seed)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


A, B, V, IMAGE = normal(3, 4), normal(4, 3, seed=1), normal(4, seed=2), normal(1, 2, 5, 5, seed=3)

TABLE = {
    "softmax": (nn.softmax, (A,)), "log_softmax": (nn.log_softmax, (A,)), "logsumexp": (nn.logsumexp, (A,)),
    "gelu": (nn.gelu, (A,)), "silu": (nn.silu, (A,)), "softplus": (nn.softplus, (A,)), "elu": (nn.elu, (A,)),
    "matmul": (fnp.matmul, (A, B)), "dot": (fnp.dot, (A, V)), "outer": (fnp.outer, (V, V)),
    "einsum": (lambda a, b: fnp.einsum("ij,jk,ij->k", a, b, a), (A, B)),
    "var": (lambda a: fnp.var(a, axis=1), (A,)), "std": (fnp.std, (A,)), "prod": (lambda a: fnp.prod(a, 0), (A,)),
    "cumsum": (lambda a: fnp.cumsum(a, 1), (A,)), "cumprod": (lambda a: fnp.cumprod(a, 0), (A,)),
    "sort": (lambda a: fnp.sort(a, 0), (A,)), "max": (lambda a: fnp.max(a, 1), (A,)),
    "where": (lambda a: fnp.where(a > 0, fnp.sqrt(fnp.abs(a)), a * a), (A,)),
    "index": (lambda a: a[::-1, [0, 2, 2]] * a[1, :3], (A,)),
    "update": (lambda a, v: a.at[1].add(v).at[:, 2].mul(2.0), (A, V)),
    "concatenate": (lambda a, v: fnp.concatenate([a, v[None] * a]), (A, V)),
    "pad": (lambda a: fnp.pad(a, 1, mode="edge"), (A,)), "roll": (lambda a: fnp.roll(a, 2, 1) * a, (A,)),
    "convolution": (lambda x, k: lax.conv_general_dilated(x, k, (2, 1), "SAME"), (IMAGE, normal(3, 2, 3, 3))),
    "norm": (lambda a: fnp.sqrt(fnp.sum(a * a, 1)), (A,)), "power": (lambda a: fnp.abs(a) ** 2.5 + 2.0 ** a, (A,)),
    "atan2": (lambda a: fnp.arctan2(a, a[::-1]), (A,)), "erf": (lambda a: lax.erf(a) * lax.lgamma(fnp.abs(a)), (A,)),
    "noise": (lambda a: a * random.normal(random.key(0), a.shape, a.dtype), (A,)),
    "jitted": (fungrad.jit(lambda a, v: fnp.tanh(a @ v)), (A, V)),
}


@pytest.mark.parametrize("name", TABLE)
def test_derivatives(name):
    function, args = TABLE[name]
    with fungrad.settings(device="reference"):
        check_grads(function, args, order=2, directions=1)


@pytest.mark.parametrize("name", TABLE)
def test_words_of_two_transforms(name):
    function, args = TABLE[name]
    with fungrad.settings(device="reference"):
        laws.check_transforms(function, args, laws.words(2))


@pytest.mark.parametrize("name", TABLE)
def test_compiled_functions(name):
    function, args = TABLE[name]
    check_jit(function, args)
    if name != "jitted":
        check_vmap(function, [np.stack([arg, arg * 0.5]) for arg in args])
