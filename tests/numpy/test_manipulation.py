"""Shapes, axes, joining, splitting, padding against NumPy."""
from __future__ import annotations

import numpy as np
import pytest

import fungrad.numpy as fnp
from fungrad.errors import ShapeError
from tests.numpy.support import near, same, staged

X = np.arange(24.0, dtype="float32").reshape(2, 3, 4)


@pytest.mark.parametrize("shape", [(6, 4), -1, (2, -1), (1, 24, 1), [4, 6], (-1, 2, 2)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_reshape(shape, order):
    same(fnp.reshape(X, shape, order), np.reshape(X, shape, order))
    same(fnp.array(X).reshape(shape), X.reshape(shape))


def test_reshape_method_and_errors():
    same(fnp.array(X).reshape(4, -1), X.reshape(4, -1))
    same(fnp.array(np.float32(1)).reshape(()), 1.0)
    same(fnp.array(X).ravel("F"), X.ravel("F"))
    same(fnp.array(X).flatten(), X.flatten())
    same(fnp.ravel(np.zeros((0, 3))), np.zeros(0))
    same(fnp.zeros((0, 3)).reshape(3, 0), np.zeros((3, 0)))
    with pytest.raises(ShapeError, match=r"\(2, 3, 4\) \(24 elements\) cannot take the shape \(5, 5\)"):
        fnp.reshape(X, (5, 5))
    with pytest.raises(ShapeError, match="multiple"):
        fnp.reshape(X, (5, -1))
    with pytest.raises(ShapeError, match="more than one"):
        fnp.reshape(X, (-1, -1))


def test_axes():
    for axes in (None, (2, 0, 1), (-1, 0, 1)):
        same(fnp.transpose(X, axes), np.transpose(X, axes))
    same(fnp.array(X).transpose(1, 0, 2), X.transpose(1, 0, 2))
    same(fnp.array(X).T, X.T)
    same(fnp.array(X).mT, X.mT)
    same(fnp.permute_dims(X, (1, 2, 0)), X.transpose(1, 2, 0))
    same(fnp.moveaxis(X, 0, -1), np.moveaxis(X, 0, -1))
    same(fnp.moveaxis(X, (0, 2), (1, 0)), np.moveaxis(X, (0, 2), (1, 0)))
    for axis in range(3):
        for start in range(-3, 4):
            same(fnp.rollaxis(X, axis, start), np.rollaxis(X, axis, start))
    same(fnp.swapaxes(X, 0, -1), np.swapaxes(X, 0, -1))
    same(fnp.expand_dims(X, (0, -1)), np.expand_dims(X, (0, -1)))
    same(fnp.squeeze(X[:1, :, :1]), X[0, :, 0])
    same(fnp.squeeze(X[:1, :, :1], -1), X[:1, :, 0])
    with pytest.raises(ShapeError, match="transpose"):
        fnp.transpose(X, (0, 1))
    with pytest.raises(ShapeError, match="3 elements, not 1"):
        fnp.squeeze(X, 1)


def test_broadcasting():
    same(fnp.broadcast_to(X[:, :1], (5, 2, 3, 4)), np.broadcast_to(X[:, :1], (5, 2, 3, 4)))
    for got, want in zip(fnp.broadcast_arrays(X, X[0, 0], 1.0), np.broadcast_arrays(X, X[0, 0], 1.0), strict=True):
        same(got, want)
    assert fnp.broadcast_shapes((3, 1), (1, 4), (2, 1, 1)) == (2, 3, 4)
    with pytest.raises(ShapeError, match=r"\(2, 3, 4\) does not broadcast|do not broadcast"):
        fnp.broadcast_to(X, (3, 4))


@pytest.mark.parametrize("name", ["atleast_1d", "atleast_2d", "atleast_3d"])
def test_at_least(name):
    for x in (np.float32(1), X[0, 0], X[0], X):
        same(getattr(fnp, name)(x), getattr(np, name)(x))
    assert [a.ndim for a in getattr(fnp, name)(1.0, X)] == [a.ndim for a in getattr(np, name)(1.0, X)]


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
def test_flip(axis):
    same(fnp.flip(X, axis), np.flip(X, axis))


def test_flips_and_turns():
    same(fnp.fliplr(X), np.fliplr(X))
    same(fnp.flipud(X), np.flipud(X))
    for k in range(-1, 5):
        same(fnp.rot90(X, k), np.rot90(X, k))
        same(fnp.rot90(X, k, (2, 0)), np.rot90(X, k, (2, 0)))


@pytest.mark.parametrize("shift, axis", [(1, None), (-30, None), (2, 0), (-1, 2), ((1, 2), (0, 2)), (3, (1, 2)),
                                         (0, 1)])
def test_roll(shift, axis):
    same(fnp.roll(X, shift, axis), np.roll(X, shift, axis))
    if isinstance(shift, int) and not isinstance(axis, tuple):
        same(staged(lambda x, s: fnp.roll(x, s, axis), X, np.int32(shift)), np.roll(X, shift, axis))


def test_resize_and_view():
    for shape in ((2, 2), (5, 7), 3, (0, 2)):
        same(fnp.resize(X, shape), np.resize(X, shape))
    same(fnp.array(X).view("int32"), X.view("int32"))


# ---- joining --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_concatenate_and_stack(axis):
    same(fnp.concatenate([X, X + 1, X], axis), np.concatenate([X, X + 1, X], axis))
    if axis is not None:
        same(fnp.stack([X, X + 1], axis), np.stack([X, X + 1], axis))
        same(fnp.concat([X, X], axis=axis), np.concat([X, X], axis=axis))
    same(fnp.append(X, X, axis), np.append(X, X, axis))


def test_joined_types():
    assert fnp.concatenate([np.ones(2, "int8"), np.ones(2, "float16")]).dtype == np.float16
    assert fnp.stack([fnp.ones(2, "bfloat16"), fnp.ones(2, "float16")]).dtype == np.float32
    assert fnp.concatenate([X, X], dtype="float64").dtype == np.float64
    same(fnp.stack([1.0, fnp.array(2.0)]), [1, 2])
    same(fnp.concatenate(X), np.concatenate(X))
    with pytest.raises(ShapeError, match=r"\(2, 3, 4\) and \(3, 4\)"):
        fnp.concatenate([X, X[0]])
    with pytest.raises(ShapeError, match="one shape"):
        fnp.stack([X, X[0]])
    with pytest.raises(ValueError, match="at least one"):
        fnp.concatenate([])


@pytest.mark.parametrize("name", ["vstack", "hstack", "dstack", "column_stack"])
def test_stacks(name):
    for parts in ([X[0, 0], X[0, 1]], [X[0], X[1]], [np.float32(1), np.float32(2)]):
        if name == "column_stack" and parts[0].ndim == 0:
            continue
        same(getattr(fnp, name)(parts), getattr(np, name)(parts))


def test_block_and_unstack():
    a, b = np.ones((2, 2)), np.zeros((2, 3))
    same(fnp.block([[a, b], [b.T, np.eye(3)]]), np.block([[a, b], [b.T, np.eye(3)]]))
    same(fnp.block([1.0, 2.0]), np.block([1.0, 2.0]))
    for got, want in zip(fnp.unstack(X, axis=1), np.unstack(X, axis=1), strict=True):
        same(got, want)


@pytest.mark.parametrize("where", [2, [1], [1, 3], [], [0, 9], [3, 1], [-1]])
def test_split(where):
    for got, want in zip(fnp.split(X, where, 2), np.split(X, where, 2), strict=True):
        same(got, want)


def test_splits():
    for name in ("hsplit", "vsplit", "dsplit"):
        for got, want in zip(getattr(fnp, name)(X, [1]), getattr(np, name)(X, [1]), strict=True):
            same(got, want)
    for got, want in zip(fnp.array_split(np.arange(8), 3), np.array_split(np.arange(8), 3), strict=True):
        same(got, want)
    with pytest.raises(ValueError, match="array_split"):
        fnp.split(X, 2, 1)


@pytest.mark.parametrize("reps", [2, (2,), (2, 1), (1, 2, 3), (2, 1, 1, 2), 0, ()])
def test_tile(reps):
    for x in (X, np.float32(3), X[0, 0]):
        same(fnp.tile(x, reps), np.tile(x, reps))


def test_repeat():
    same(fnp.repeat(X, 3), np.repeat(X, 3))
    same(fnp.repeat(X, 2, 1), np.repeat(X, 2, 1))
    same(fnp.repeat(X, [1, 0, 2], 1), np.repeat(X, [1, 0, 2], 1))
    same(fnp.repeat(X, 0, 0), np.repeat(X, 0, 0))
    same(fnp.repeat(np.arange(3), [1, 0, 2], total_repeat_length=5), [0, 2, 2, 2, 2])
    got = staged(lambda x, n: fnp.repeat(x, n, 1, total_repeat_length=4), X, np.array([1, 0, 3]))
    same(got, np.repeat(X, [1, 0, 3], 1))
    got = staged(lambda x, n: fnp.repeat(x, n, total_repeat_length=4), np.arange(3), np.array([0, 1, 1]))
    same(got, [1, 2, 2, 2])
    with pytest.raises(TypeError, match="total_repeat_length"):
        staged(lambda x, n: fnp.repeat(x, n), np.arange(3), np.array([0, 1, 1]))


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap", "maximum", "minimum", "mean", "linear_ramp"])
@pytest.mark.parametrize("width", [1, (2, 0), ((0, 0), (2, 3), (5, 1)), ((9, 10), (0, 7), (3, 4))])
def test_pad(mode, width):
    near(fnp.pad(X, width, mode), np.pad(X, width, mode))


def test_pad_constants():
    same(fnp.pad(X, 1), np.pad(X, 1))
    same(fnp.pad(X, ((1, 0), (0, 2), (0, 0)), constant_values=7),
         np.pad(X, ((1, 0), (0, 2), (0, 0)), constant_values=7))
    values = ((1, 2), (3, 4), (5, 6))
    same(fnp.pad(X, 1, constant_values=values), np.pad(X, 1, constant_values=values))
    same(fnp.pad(X[0, 0, :1], 3, "reflect"), np.pad(X[0, 0, :1], 3, "reflect"))
    same(fnp.pad(X, {-1: (1, 2)}), np.pad(X, ((0, 0), (0, 0), (1, 2))))
    with pytest.raises(ValueError, match="before, after"):
        fnp.pad(X, (1, 2, 3))
    with pytest.raises(NotImplementedError, match="median"):
        fnp.pad(X, 1, "median")


@pytest.mark.parametrize("where, values, axis", [
    (1, 9.0, 0), ([0, 2], 5.0, None), ([1, 1], [7.0, 8.0], None), (slice(0, 3, 2), 1.0, 1),
    (-1, [1.0, 2.0, 3.0], None)])
def test_insert(where, values, axis):
    same(fnp.insert(X, where, values, axis), np.insert(X, where, values, axis))


@pytest.mark.parametrize("where, axis", [(1, 0), ([0, 2], 1), (slice(None, None, 2), None), (-1, 2), ([], 0),
                                         ([5, 7, 9, 11], None)])
def test_delete(where, axis):
    where = np.array(where, int) if isinstance(where, list) else where
    same(fnp.delete(X, where, axis), np.delete(X, where, axis))
