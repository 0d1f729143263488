"""fungrad.random against numbers made by jax 0.10.2 (threefry2x32, jax_threefry_partitionable=True)."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fungrad
import fungrad.random as random
from fungrad.errors import DTypeError, RefusedError, ShapeError
from fungrad.trace import active
from tests.ops.eager import EagerTrace, run, unwrap, wrap

KEY = np.array([0, 42], np.uint32)
F32 = np.dtype("float32")
P = np.array([0.1, 0.2, 0.3, 0.4], np.float32)


def draw(name, *args, **params):
    """The named function of KEY; array arguments are wrapped."""
    return run(getattr(random, name), KEY, *args, **params)


def same(actual, expected, dtype, shape=None):
    expected = np.array(expected, dtype) if shape is None else np.array(expected, dtype).reshape(shape)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    np.testing.assert_array_equal(actual, expected)


def close(actual, expected, ulps=4, dtype=F32):
    expected = np.array(expected, dtype)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    spacing = np.spacing(np.abs(expected))
    assert np.all(np.abs(actual - expected) <= ulps * spacing), (actual, expected)


# ---- keys and bits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed,expected", [(42, [0, 42]), (-1, [0, 2**32 - 1]), (2**40 + 5, [256, 5]),
                                           (2**64 - 1, [2**32 - 1, 2**32 - 1])])
def test_key(seed, expected):
    same(run(lambda: random.key(seed)), expected, np.uint32)


def test_key_of_an_array():
    same(run(random.key, np.array(-1, np.int32)), [0, 2**32 - 1], np.uint32)
    same(run(random.key, np.array(2**40 + 5)), [256, 5], np.uint32)
    assert random.PRNGKey is random.key


def test_split_and_fold_in():
    words = [1832780943, 270669613, 64467757, 2916123636, 2465931498, 255383827, 3134548294, 894150801]
    same(draw("split"), words[:4], np.uint32, (2, 2))
    same(draw("split", num=(2, 2)), words, np.uint32, (2, 2, 2))
    same(draw("fold_in", data=7), [2547012911, 1371500959], np.uint32)
    same(draw("fold_in", np.array(-1, np.int32)), [2398536845, 3890976714], np.uint32)
    same(draw("fold_in", data=2**32 - 1), [2398536845, 3890976714], np.uint32)


@pytest.mark.parametrize("dtype,expected", [
    ("uint8", [162, 217, 249, 215, 21]), ("uint16", [5026, 12505, 63993, 49623, 29461]),
    ("uint32", [2098992034, 2919706841, 2646866425, 2409546199, 1935504149]),
    ("uint64", [7871734211187709741, 276886910877598708, 10591095138341673235])])
def test_bits(dtype, expected):
    same(draw("bits", shape=(len(expected),), dtype=dtype), expected, dtype)


def test_bits_number_the_elements_in_row_major_order():
    flat = draw("bits", shape=6)
    same(draw("bits", shape=(2, 3)), flat, np.uint32, (2, 3))


# ---- uniform, integers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype,expected", [
    ("float16", [0.076171875, 0.1904296875, 0.9755859375, 0.7568359375]),
    ("bfloat16", [0.6328125, 0.84375, 0.96875, 0.8359375]),
    ("float32", [0.48870956897735596, 0.6797971725463867, 0.6162714958190918, 0.5610160827636719]),
    ("float64", [0.4267275666499091, 0.015010069515314584, 0.5741444178995352])])
def test_uniform(dtype, expected):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    same(draw("uniform", shape=(len(expected),), dtype=dtype), expected, kind)


def test_uniform_between_bounds():
    expected = [0.4435478448867798, 1.3989858627319336, 1.081357479095459, 0.8050804138183594]
    by_number = draw("uniform", shape=(4,), minval=-2, maxval=3.0)
    np.testing.assert_allclose(by_number, expected, atol=1.2e-7)   # JAX's multiply-add rounds once
    by_array = run(lambda k, low: random.uniform(k, (4,), None, low, 3.0), KEY, np.full((4,), -2, np.float32))
    same(by_array, by_number, F32)


@pytest.mark.parametrize("dtype,low,high,expected", [
    ("int32", -5, 10, [4, 4, 1, -1, 9, 4]), ("uint8", 0, 256, [196, 18, 183, 193, 141, 107]),
    ("int8", -100, 100, [-56, 14, -29, 69, 9, -81]),
    ("int64", -2**40, 2**40, [-64295291339, -359608887618, -961504916329])])
def test_randint(dtype, low, high, expected):
    same(draw("randint", shape=(len(expected),), minval=low, maxval=high, dtype=dtype), expected, dtype)


def test_randint_of_a_whole_type():
    drawn = draw("randint", shape=(3,), minval=0, maxval=2**32, dtype="uint32")
    same(drawn, [3125294276, 3383865362, 780371127], np.uint32)


def test_randint_of_an_empty_range_is_its_lower_end():
    same(draw("randint", shape=(3,), minval=4, maxval=4), [4, 4, 4], np.int32)


def test_bernoulli_and_rademacher():
    expected = [False, False, False, False, False, False, True, False]
    same(draw("bernoulli", p=0.3, shape=(8,)), expected, bool)
    same(draw("bernoulli", p=0.3, shape=(8,), mode="high"), expected, bool)
    same(draw("rademacher", shape=(4,)), [1, -1, -1, -1], np.int32)


# ---- continuous distributions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype,expected", [
    ("float16", [-1.4296875, -0.87548828125, 1.974609375, 0.69677734375, -0.1270751953125, -0.501953125]),
    ("float32", [-0.02830461598932743, 0.4671318531036377, 0.2957029640674591, 0.15354591608047485,
                 -0.12403281778097153, 0.21692314743995667]),
    ("float64", [-0.18471174528191162, -2.169824560397754, 0.18693555179382582])])
def test_normal(dtype, expected):
    close(draw("normal", shape=(len(expected),), dtype=dtype), expected, 4, np.dtype(dtype))


def test_normal_of_bfloat16():
    expected = np.array([0.34375, 1.015625, 1.890625, 0.984375, -1.40625, 1.015625], ml_dtypes.bfloat16)
    actual = draw("normal", shape=(6,), dtype="bfloat16")
    np.testing.assert_allclose(actual.astype(float), expected.astype(float), 2**-7)


@pytest.mark.parametrize("name,args,expected", [
    ("exponential", {}, [0.670817494392395, 1.1388006210327148, 0.9578199982643127, 0.8232924938201904]),
    ("gumbel", {}, [0.3340933918952942, 0.952019453048706, 0.7255305647850037, 0.5481715202331543]),
    ("gumbel", {"mode": "high"}, [0.39925798773765564, -0.12997561693191528, 0.043095413595438004, 0.1944437325000763]),
    ("laplace", {}, [0.022839652374386787, -0.4456535577774048, -0.2646729052066803, -0.1301453858613968]),
    ("logistic", {}, [-0.0451694130897522, 0.7528398036956787, 0.47375231981277466, 0.245286762714386]),
    ("cauchy", {}, [-0.03548463061451912, 0.6337261199951172, 0.38244056701660156, 0.1940706968307495]),
    ("maxwell", {}, [0.553582489490509, 0.293285071849823, 1.708603024482727, 1.5084577798843384]),
    ("pareto", {"b": 2.0}, [1.3985118865966797, 1.7672069072723389, 1.6143138408660889, 1.5093004703521729]),
    ("rayleigh", {"scale": 2.0}, [2.3933022022247314, 1.7571814060211182, 1.9678773880004883, 2.1503593921661377]),
    ("weibull_min", {"scale": 2.0, "concentration": 3.0},
     [1.7507795095443726, 2.088554859161377, 1.9714751243591309, 1.87448251247406]),
    ("triangular", {"left": 0.0, "mode": 1.0, "right": 3.0},
     [1.2485027313232422, 1.6139203310012817, 1.4826433658599854, 1.3770694732666016]),
    ("lognormal", {"sigma": 0.5}, [0.9859473705291748, 1.2630960941314697, 1.159340739250183, 1.0797969102859497]),
    ("truncated_normal", {"lower": -1.0, "upper": 2.0},
     [0.14770005643367767, 0.5684449076652527, 0.42102551460266113, 0.29997000098228455])])
def test_continuous_distributions(name, args, expected):
    actual = draw(name, shape=(4,), **args)
    assert actual.dtype == F32
    np.testing.assert_allclose(actual, expected, 3e-6, 3e-7)


def test_truncated_normal_stays_inside_narrow_bounds():
    x = draw("truncated_normal", lower=0.5, upper=0.5000001, shape=(50,))
    assert np.all(x > np.float32(0.5)) or np.all(x == np.nextafter(np.float32(0.5000001), F32.type(0)))


def test_geometric():
    same(draw("geometric", p=0.3, shape=(4,)), [3, 2, 2, 2], np.int32)


# ---- gamma and its relatives ----------------------------------------------------------------------------------------


def _floats(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("name,parameter,expected", [
    ("gamma", _floats(0.5, 1, 3, 10), [0.9994542002677917, 0.33158406615257263, 4.866050720214844, 8.321683883666992]),
    ("loggamma", _floats(0.05, 1, 3, 10),
     [-9.972711563110352, -1.1038738489151, 1.5822826623916626, 2.1188647747039795]),
    ("dirichlet", _floats(1, 2, 3), [0.2647324502468109, 0.13479970395565033, 0.6004677414894104])])
def test_gamma_and_dirichlet(name, parameter, expected):
    actual = draw(name, parameter)
    assert actual.dtype == F32
    np.testing.assert_allclose(actual, expected, 2e-6)


def test_beta_chisquare_t():
    found = run(lambda k, a: random.beta(k, a, 3.0), KEY, _floats(0.5, 2))
    np.testing.assert_allclose(found, [0.18927522003650665, 0.3128182888031006], 2e-6)
    np.testing.assert_allclose(draw("chisquare", df=3.0, shape=(3,)),
                               [5.87071418762207, 1.3978509902954102, 5.559423446655273], 2e-6)
    np.testing.assert_allclose(draw("t", df=3.0, shape=(3,)),
                               [0.08987478166818619, -1.7357467412948608, 2.3520190715789795], 2e-6)


@pytest.mark.parametrize("name,args,expected", [
    ("double_sided_maxwell", {"loc": 1.0, "scale": 2.0}, [-1.7620434761047363, -0.3513779640197754, 5.444042682647705]),
    ("wald", {"mean": 2.0}, [2.226588487625122, 3.9277124404907227, 0.38947534561157227]),
    ("f", {"dfnum": 3.0, "dfden": 4.0}, [0.7448718547821045, 0.4786113500595093, 0.23294630646705627]),
    ("generalized_normal", {"p": 1.5}, [-0.8782375454902649, -0.2061624526977539, 1.160470962524414])])
def test_compositions(name, args, expected):
    np.testing.assert_allclose(draw(name, shape=(3,), **args), expected, 3e-6)


def test_ball():
    expected = [[0.3234561085700989, 0.06134895980358124], [0.015618555247783661, 0.4701036512851715]]
    np.testing.assert_allclose(draw("ball", d=2, shape=(2,)), expected, 2e-6)


def test_keys_are_their_words():
    same(draw("wrap_key_data"), [0, 42], np.uint32)
    same(draw("key_data"), draw("clone"), np.uint32)


def test_poisson():
    same(draw("poisson", _floats(0, 0.5, 3, 9, 20, 100)), [0, 1, 2, 7, 13, 90], np.int32)
    assert draw("gamma", a=2.0, shape=(2,), dtype="float16").dtype == np.float16


def test_gradient_of_gamma_with_respect_to_its_parameter():
    """The numbers of jax.grad(jax.random.gamma, argnums=1) and loggamma."""
    by_a = fungrad.grad(lambda a: random.gamma(KEY, a))(3.0)
    np.testing.assert_allclose(np.asarray(by_a), 1.3574945, 1e-5)
    by_log = fungrad.vmap(fungrad.grad(lambda a: random.loggamma(KEY, a)))(_floats(0.5, 2, 30))
    np.testing.assert_allclose(np.asarray(by_log), [1.8788071, 0.39478636, 0.03034514], 1e-5)


# ---- compiled -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name,args", [
    ("normal", {"shape": (40,)}), ("bits", {"shape": (5,), "dtype": "uint64"}), ("permutation", {"x": 40}),
    ("gamma", {"a": 0.7, "shape": (9,)}), ("poisson", {"lam": 15.0, "shape": (9,)}), ("poisson", {"lam": 2.0}),
    ("categorical", {"logits": np.log(P), "shape": (9,)}), ("randint", {"shape": (9,), "minval": -3, "maxval": 40})])
def test_compiled_numbers_are_those_of_the_references(name, args):
    compiled = np.asarray(fungrad.jit(lambda k: getattr(random, name)(k, **args))(KEY))
    args = {key: wrap(value) for key, value in args.items()}
    np.testing.assert_allclose(compiled, draw(name, **args), 3e-6, 3e-7)


def test_vmap_over_keys_gives_what_each_key_gives():
    many = np.stack([KEY, KEY + 1, KEY + 2])
    for function in (lambda k: random.normal(k, (2,)), lambda k: random.permutation(k, 5), lambda k: random.split(k),
                     lambda k: random.poisson(k, 3.0, (2,))):
        together = np.asarray(fungrad.jit(fungrad.vmap(function))(many))
        np.testing.assert_array_equal(together, np.stack([np.asarray(function(k)) for k in many]))


# ---- choosing -------------------------------------------------------------------------------------------------------


def test_permutation():
    table = np.arange(6).reshape(3, 2)
    same(draw("permutation", x=8), [7, 4, 2, 5, 3, 6, 0, 1], np.int32)
    same(draw("permutation", table), [[4, 5], [0, 1], [2, 3]], np.int64)
    independent = draw("permutation", table, axis=0, independent=True)
    same(np.sort(independent, 0), table, np.int64)


def test_choice():
    same(draw("choice", a=10, shape=(5,)), [4, 4, 1, 9, 9], np.int32)
    same(draw("choice", a=10, shape=(5,), replace=False), [7, 4, 2, 5, 3], np.int32)
    same(draw("choice", np.arange(12).reshape(3, 4), shape=(2,), axis=1), [[0, 2], [4, 6], [8, 10]], np.int64)
    by_weight = run(lambda k, p: random.choice(k, 4, (6,), True, p), KEY, P)
    same(by_weight, [2, 2, 2, 2, 2, 2], np.int32)
    same(run(lambda k, p: random.choice(k, 4, (3,), False, p), KEY, P), [3, 2, 1], np.int32)
    same(draw("choice", a=0, shape=(0,)), [], np.int32)
    assert draw("choice", np.zeros((3, 2)), shape=(0, 4)).shape == (0, 4, 2)


def test_categorical():
    same(draw("categorical", np.log(P), shape=(6,)), [3] * 6, np.int32)
    same(draw("categorical", np.log(P), shape=(3,), replace=False), [3, 2, 1], np.int32)
    same(draw("categorical", np.arange(6, dtype=np.float32).reshape(2, 3), axis=0), [1, 1, 1], np.int32)


def test_categorical_follows_its_probabilities():
    counts = np.bincount(draw("categorical", np.log(P), shape=(4000,)), minlength=4) / 4000
    np.testing.assert_allclose(counts, P, atol=0.03)


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_errors():
    with active(EagerTrace()):
        with pytest.raises(TypeError, match=r"uint32 array of shape \(2,\).*vmap"):
            random.normal(wrap(np.zeros((3, 2), np.uint32)))
        with pytest.raises(TypeError, match="made by fungrad.random.key"):
            random.bits(7)
        with pytest.raises(DTypeError, match="floating"):
            random.uniform(wrap(KEY), (2,), "int32")
        with pytest.raises(ShapeError, match="do not broadcast to the requested"):
            random.uniform(wrap(KEY), (2,), minval=wrap(np.zeros((3, 2))))
        with pytest.raises(ValueError, match="5 draws without replacement from 3"):
            random.choice(wrap(KEY), 3, (5,), replace=False)
        with pytest.raises(RefusedError, match="qr"):
            random.orthogonal(wrap(KEY), 3)
        assert unwrap(random.uniform(wrap(KEY), ())).shape == ()
