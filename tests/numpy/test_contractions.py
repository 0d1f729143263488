"""Sums of products against NumPy; how many dot_generals, transposes and broadcasts they cost."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fungrad.numpy as fnp
from fungrad.errors import ShapeError
from fungrad.ir.types import array_type
from fungrad.trace import trace_program
from tests.numpy.support import near, same

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


def operations(function, *shapes):
    types = [array_type(shape, np.dtype("float32")) for shape in shapes]
    program = trace_program(lambda *xs: [function(*xs)], types).program
    return [node.primitive.name for node in program.nodes() if node.primitive.name != "input"]


MATMULS = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
           ((5, 2, 3), (5, 3, 4)), ((5, 1, 2, 3), (6, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((5, 2, 3), (3,)),
           ((3,), (5, 3, 4)),
           ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((6, 1, 2, 3), (1, 7, 3, 1))]


@pytest.mark.parametrize("x, y", MATMULS)
def test_matmul(x, y):
    a, b = normal(*x), normal(*y)
    near(fnp.matmul(a, b), np.matmul(a, b))
    near(fnp.array(a) @ b, a @ b)


@pytest.mark.parametrize("x, y", [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)), ((3,), (3, 4)),
                                  ((2, 3), (3,))])
def test_matmul_is_one_operation(x, y):
    assert operations(fnp.matmul, x, y) == ["dot_general"]


def test_matmul_never_broadcasts():
    for x, y in MATMULS:
        assert "broadcast" not in operations(fnp.matmul, x, y), (x, y)
    assert operations(lambda a, b: fnp.einsum("bqd,bkd->bqk", a, b), (2, 3, 4), (2, 5, 4)) == ["dot_general"]
    assert operations(lambda a, b: fnp.einsum("bhqd,bhkd->bhqk", a, b), (2, 3, 4, 5), (2, 3, 6, 5)) == ["dot_general"]
    assert operations(lambda a, b: fnp.einsum("ij,jk->ki", a, b), (2, 3), (3, 4)) == ["dot_general"]
    assert operations(lambda a, b: fnp.tensordot(a, b), (2, 3, 4), (3, 4, 5)) == ["dot_general"]


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "bool", "float16", "float64"])
def test_element_types(dtype):
    a, b = (RNG.integers(0, 2 if dtype == "bool" else 5, (3, 3)).astype(dtype) for _ in range(2))
    got = fnp.matmul(a, b)
    near(got, np.matmul(a, b))
    assert got.dtype.name == dtype
    assert fnp.einsum("ij,jk", a, b).dtype.name == dtype
    assert fnp.matmul(a, b, preferred_element_type="float32").dtype == np.float32


def test_mixed_element_types():
    a, b = np.arange(6).reshape(2, 3), normal(3, 2)
    near(fnp.matmul(a, b), a @ b, dtype="float32")
    near(fnp.dot(a, 2.5), a * 2.5, dtype="float32")
    same(fnp.dot(a, 2), a * 2)


def test_shape_errors():
    with pytest.raises(ShapeError, match=r"matmul: shapes \(2, 3\) and \(4, 5\).*3 elements.*4"):
        fnp.ones((2, 3)) @ fnp.ones((4, 5))
    with pytest.raises(ShapeError, match=r"x @ y\.mT"):
        fnp.ones((2, 3)) @ fnp.ones((4, 3))
    with pytest.raises(ShapeError, match="do not broadcast together"):
        fnp.ones((2, 2, 3)) @ fnp.ones((4, 3, 5))
    with pytest.raises(ShapeError, match="scalars"):
        fnp.matmul(2.0, np.ones(3))
    with pytest.raises(ShapeError, match=r"dot: shapes"):
        fnp.dot(np.ones(3), np.ones(4))
    with pytest.raises(ShapeError, match="einsum 'ij,jk': shapes"):
        fnp.einsum("ij,jk", np.ones((2, 3)), np.ones((4, 5)))
    with pytest.raises(ValueError, match="2 operands"):
        fnp.einsum("ij,jk", np.ones((2, 3)))
    with pytest.raises(ValueError, match="no operand"):
        fnp.einsum("ij->k", np.ones((2, 3)))
    with pytest.raises(ShapeError, match="names 3 axes"):
        fnp.einsum("ijk", np.ones((2, 3)))


@pytest.mark.parametrize("x, y", [((), ()), ((3,), ()), ((2, 3), (3,)), ((4, 2, 3), (5, 3, 6)), ((4, 3), (2, 5, 3, 6)),
                                  ((3,), (2, 3, 4))])
def test_dot(x, y):
    a, b = normal(*x), normal(*y)
    near(fnp.dot(a, b), np.dot(a, b))


def test_products():
    a, b = normal(2, 3, 4), normal(4, 3, 5)
    near(fnp.vdot(a, a), np.vdot(a, a))
    c = normal(6, 4)
    near(fnp.inner(a, c), np.inner(a, c))
    near(fnp.outer(a, c), np.outer(a, c))
    near(fnp.tensordot(a, b, ((2, 1), (0, 1))), np.tensordot(a, b, ((2, 1), (0, 1))))
    near(fnp.tensordot(a, b, 1), np.tensordot(a, b, 1))
    near(fnp.tensordot(a, b, 0), np.tensordot(a, b, 0))
    near(fnp.tensordot(a, b, (-1, 0)), np.tensordot(a, b, (-1, 0)))
    near(fnp.vecdot(a, a[0]), np.vecdot(a, a[0]))
    near(fnp.vecdot(a, a, axis=1), np.vecdot(a, a, axis=1))
    near(fnp.matvec(a, c[0]), np.matvec(a, c[0]))
    near(fnp.vecmat(c[0], b[:, 0]), np.vecmat(c[0], b[:, 0]))
    near(fnp.kron(a, c), np.kron(a, c))
    near(fnp.kron(c, a), np.kron(c, a))
    near(fnp.trace(a, 1), np.trace(a, 1))
    near(fnp.trace(a, -1, 2, 1), np.trace(a, -1, 2, 1))


def test_cross():
    a, b, c = normal(5, 3), normal(5, 3), normal(5, 2)
    near(fnp.cross(a, b), np.cross(a, b))
    near(fnp.cross(a.T, b, axisa=0), np.cross(a.T, b, axisa=0))
    near(fnp.cross(a, b, axisc=0), np.cross(a, b, axisc=0))
    near(fnp.cross(c, c[::-1]), c[:, 0] * c[::-1][:, 1] - c[:, 1] * c[::-1][:, 0])
    near(fnp.cross(a[0], b), np.cross(a[0], b))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("n, m", [(7, 3), (3, 7), (6, 4), (4, 4), (1, 5), (5, 2)])
def test_convolution(mode, n, m):
    a, b = normal(n), normal(m)
    near(fnp.convolve(a, b, mode), np.convolve(a, b, mode), 1e-4)
    near(fnp.correlate(a, b, mode), np.correlate(a, b, mode), 1e-4)


def test_polynomials():
    p, q = np.array([1.0, -2, 3]), np.array([2.0, 0.5])
    near(fnp.polyval(p, np.arange(4.0)), np.polyval(p, np.arange(4.0)))
    for name in ("polyadd", "polysub", "polymul"):
        near(getattr(fnp, name)(p, q), getattr(np, name)(p, q))
    near(fnp.polyder(p), np.polyder(p))
    near(fnp.polyint(p), np.polyint(p))


# ---- einsum ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("spec, shapes", [
    ("ij->ji", [(2, 3)]), ("ii", [(3, 3)]), ("ii->i", [(3, 3)]), ("iij->j", [(3, 3, 2)]), ("ij->", [(2, 3)]),
    ("ijk->ki", [(2, 3, 4)]),
    ("i,i", [(3,), (3,)]), ("i,j", [(2,), (3,)]), ("ij,jk", [(2, 3), (3, 4)]), ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]), ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
    ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
    ("...i->...", [(2, 3)]), ("i...,i...->...", [(3, 2), (3, 1)]), ("ij,ij->ij", [(2, 3), (2, 3)]),
    ("ij,j->i", [(2, 3), (3,)]),
    ("abc,cd,bd->a", [(2, 3, 4), (4, 5), (3, 5)]), ("ij,kj->", [(2, 3), (4, 3)]), ("i,->i", [(3,), ()]),
    (",", [(), ()]),
    ("ij,jk", [(2, 1), (3, 4)]), ("ba,cb", [(2, 3), (4, 2)]), ("ij,ik,il->jkl", [(2, 3), (2, 4), (2, 5)]),
    ("a,b,c,d->dcba", [(2,), (3,), (1,), (2,)]), ("iji->j", [(2, 3, 2)]), ("...", [(2, 3)]),
    ("ij,jj->i", [(2, 3), (3, 3)])])
def test_einsum(spec, shapes):
    arrays = [normal(*shape) for shape in shapes]
    near(fnp.einsum(spec, *arrays), np.einsum(spec, *arrays), 1e-4)


def test_einsum_of_lists():
    a, b = normal(2, 3), normal(3, 4)
    near(fnp.einsum(a, [0, 1], b, [1, 2]), np.einsum(a, [0, 1], b, [1, 2]))
    near(fnp.einsum(a, [0, 1], b, [1, 2], [2, 0]), np.einsum(a, [0, 1], b, [1, 2], [2, 0]))
    near(fnp.einsum("i j, j k -> i k", a, b), a @ b)


@st.composite
def specs(draw):
    letters = "abcdef"
    extents = {k: draw(st.integers(1, 3)) for k in letters}
    terms = draw(st.lists(st.text(letters, min_size=0, max_size=4), min_size=1, max_size=4))
    dots = draw(st.booleans())
    used = sorted(set("".join(terms)))
    result = draw(st.permutations(used).map(lambda p: "".join(p)))[:draw(st.integers(0, len(used)))]
    batch = (2, 3)
    arrays = []
    for number, term in enumerate(terms):
        lead = batch[draw(st.integers(0, 2)):] if dots else ()
        arrays.append(normal(*lead, *(extents[k] for k in term)))
        terms[number] = ("..." if dots else "") + term
    return ",".join(terms) + "->" + ("..." if dots else "") + result, arrays


@given(specs())
@settings(max_examples=60)
def test_random_einsums(case):
    spec, arrays = case
    near(fnp.einsum(spec, *arrays), np.einsum(spec, *[a.astype("f8") for a in arrays]), 1e-3)


def test_einsum_path_starts_with_the_cheap_pair():
    path, _ = fnp.einsum_path("ij,jk,kl->il", np.ones((100, 2)), np.ones((2, 100)), np.ones((100, 2)))
    assert path[1] == (1, 2)
