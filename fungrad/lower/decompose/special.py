"""Error functions, the logarithm of the gamma function and its derivative, for float32 and float64."""
from __future__ import annotations

import math

from .formula import FLOAT32, INFINITY, NAN, Formula, copy_sign, fma, layout, polynomial, rarely, where
from .transcendental import exp, exp2_normal, log
from .trigonometric import sin_cos

# erf(x) / x in x**2: float32 for |x| <= 0.9, float64 for |x| <= 1
_ERF32 = (1.1283791667618341, -0.376126349560704, 0.11283714657091418, -0.026860486765043098, 0.005203802817118132,
          -0.0008174968865668285, 8.51012895072067e-05)
# float32: -log2(erfc(x)) for 0.9 <= x <= 3.95
_LOG_ERFC = (0.00023813133637216028, 1.6270758761352864, 0.9189479271781341, 0.15021700027399054, -0.032200244287077746,
             0.004424138301307909, -0.00028613212138582053)
_ERF64 = (1.1283791670955126, -0.3761263890318375, 0.11283791670954854, -0.026866170645072327, 0.0052239776247750965,
          -0.0008548326978397696, 0.00012055331023889635, -1.4925593184134902e-05, 1.6460967485703016e-06,
          -1.6349967157100312e-07, 1.4657479426027295e-08, -1.1364082059110735e-09, 5.942524355997223e-11)
# (1 + 2x) exp(x**2) erfc(x) in q = (x-k) / (x+k), x >= 0; k = 2 and 4
_ERFCX = {32: (1.2769783939663244, -0.09276398500795328, -0.16603146108297656, 0.16405542537656165,
               -0.054203882546338567,
               -0.008060142066527226, 0.00863009294976526, 0.0013133067737353104, -0.0012279977921511624,
               -0.000399445993576868),
          64: (1.2329951186255526, -0.1396211168405629, 0.015379652102619764, 0.0680970542547366, -0.10103906603630115,
               0.09373283499682383, -0.06633036581256392, 0.03716751556185246, -0.016197734048424096,
               0.005031969763569307, -0.0007577734048632322, -0.00019925556126203854, 0.000150622471570331,
               -2.4402941519317894e-05, -1.1225283013774773e-05, 5.7172952872534744e-06, 3.0195633048618507e-07,
               -8.342404734380856e-07, 6.23891741885035e-08, 1.1456137227327323e-07, -7.778914654400157e-09,
               -1.3386285528789123e-08, -1.717627926529101e-09)}
# erf_inv(x) / x in w = -log(1 - x**2) or its root: ((upper end, takes the root, centre, coefficients), ...)
_ERF_INV = {
    32: ((5.0, False, 2.5, (1.5014093595092701, 0.2466402867849694, -0.004177388219575693, -0.0012527436147958496,
                            0.00021834582230518943, -4.962123590432658e-06, -3.4631180690953515e-06,
                            4.6586189874146704e-07, 2.3270421438763147e-08, -8.765736344358342e-09)),
         (INFINITY, True, 3.125, (2.9583201119361884, 1.0037184124368792, 0.007049954088060755, -0.005295621049464409,
                                  0.003775835957848234, -0.002547130013503517, 0.0013223790397196807,
                                  -0.00027752031541694854, -0.00018102991289480029, 0.00010306389120136632))),
    64: ((6.25, False, 3.125, (
            1.6536545626831027, 0.24015818242559042, -0.006033670871429115, -0.0007407025341727359,
            0.0001867342080285641,
            -1.3882523347546513e-05, -1.3654691894382411e-06, 4.234787619555501e-07, -2.9070380103286357e-08,
            -4.11262443535914e-09, 1.051217755200744e-09, -5.4157456626577425e-11, -1.297694218228302e-11,
            2.6342367275267464e-12, -8.114189284031941e-14, -4.064541903291691e-14, 6.587650129454646e-15,
            2.9332371755811306e-17, -1.2924555367882687e-16, 1.0766926680442787e-17, 1.0998828993152038e-18,
            -1.6068944372582991e-19)),
         (16.0, True, 3.25, (
             3.0838856104922203, 1.0052589676941595, 0.0053709145536037515, -0.003751208507584725,
             0.0024914420954589137,
             -0.0016882755556850957, 0.0009532893915664628, -0.00035503752361903474, 2.4031002483946806e-05,
             6.828486764105992e-05, -4.731767654428351e-05, 1.2475260551535368e-05, 2.9217843658464697e-06,
             -4.013803442462003e-06, 1.5056478032270598e-06, 1.8194843857994624e-08, -2.779180352714715e-07,
             9.076680852018828e-08, 3.2924159798541614e-09)),
         (INFINITY, True, 5.0, (
             4.849906401408584, 1.010300464864526, -0.00013871931838906767, -0.00021503011897228944,
             7.599527827961449e-05, -1.9681781701445192e-05, 4.526051731691701e-06, -9.929655238562949e-07,
             2.2905011950860235e-07, -6.775395485920753e-08, 2.9047130680675214e-08, -1.4905523704912033e-08,
             7.738492289721867e-09, -3.825380111605296e-09, 1.4305022705509618e-09, -2.4612462508788406e-10,
             -7.552099142132814e-12)))}
# lgamma(x) / ((x-1)(x-2)) in x-2 for 1 <= x <= 3 (float64: interpolated at Chebyshev's points)
_LGAMMA = {32: (0.422784326191921, -0.10031727300424927, 0.032965627474764475, -0.012384976796481026,
                0.004991546698517219,
                -0.0021020504737238174, 0.0009443365400033519, -0.0004255997298631402, 0.00013058666765796534,
                -5.238875665911886e-05, 7.819399240957725e-05, -3.8746046746569856e-05),
           64: (0.42278433509846713, -0.10031730167435392, 0.03296500062115574, -0.012384192193371238,
                0.004998641164703528, -0.002108130833958805, 0.0009153769220696921, -0.00040570739742046497,
                0.00018255264185594036, -8.30951276372239e-05, 3.8168863787885225e-05, -1.766166422556033e-05,
                8.222342452139818e-06, -3.847396648270243e-06, 1.8074775340912791e-06, -8.526588188526563e-07,
                4.0551922127948146e-07, -1.9252286332850674e-07, 8.75360413423732e-08, -4.17254430301382e-08,
                2.615457216445561e-08, -1.2569945435720683e-08, -6.830399052794191e-10, 3.613371593815743e-10,
                4.885761922683655e-09, -2.372580625023415e-09, -1.3764318718154119e-09, 6.705737026247826e-10,
                4.226016675377439e-10, -2.0542420991550905e-10)}
# B(2k) / (2k (2k-1)) and B(2k) / (2k): the series of Stirling for lgamma and digamma
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)
# digamma(x) / (x - root) in x-1.5 for 1 <= x <= 2
_DIGAMMA_ROOT = {32: (1.4616321325302124, 1.2438147e-08), 64: (1.4616321449683622, 9.549995429965697e-17)}
_DIGAMMA = {32: (0.9510558756334243, -0.4236274988814767, 0.24054261570571156, -0.14839878573006757,
                 0.09498208190037023,
                 -0.06205707676188125, 0.040879352647889146, -0.025781009054338184, 0.016980338074222952,
                 -0.016384101022970044, 0.011118769376903485),
            64: (0.9510558760318328, -0.4236274212814606, 0.24054248424078722, -0.14840492305388028,
                 0.09498872445284975, -0.0619221332755427, 0.04076083394339179, -0.026975796657624902,
                 0.017907248235563215, -0.011908220153187116, 0.007927023327559353, -0.0052799366356614955,
                 0.0035180887041052077, -0.0023454998376710775, 0.001563503406353652, -0.0010364320149611576,
                 0.0006902820953881222, -0.0004860346188092202, 0.0003258809173502259, -0.0001446564479119431,
                 9.329478642790907e-05, -0.000178333301999117, 0.00012117355598360796)}


def _erfc_of_size(size: Formula) -> Formula:
    """erfc(x) for x >= 0: exp(-x**2) with the rounding error of x**2 made good, times a smooth function."""
    bits = layout(size).bits
    k = 2.0 if bits == 32 else 4.0
    size = size.min(11.0 if bits == 32 else 28.0)
    q = (size - k) / (size + k)
    smooth = polynomial(q, _ERFCX[bits]) / fma(size, 2.0, 1.0)
    square = size * size
    error = fma(size, size, -square)
    decay = exp(-square)
    return fma(-error, decay, decay) * smooth


def erfc(x: Formula) -> Formula:
    value = _erfc_of_size(abs(x))
    return where(x < 0.0, 2.0 - value, value)


def erf(x: Formula) -> Formula:
    size = abs(x)
    if x.dtype == FLOAT32:
        small = x * polynomial(x * x, _ERF32)
        large = 1.0 - exp2_normal(-polynomial(size.min(3.95), _LOG_ERFC))
        return where(size < 0.9, small, copy_sign(large, x))
    small = x * polynomial(x * x, _ERF64)
    return where(size < 1.0, small, copy_sign(1.0 - _erfc_of_size(size), x))


def erf_inv(x: Formula) -> Formula:
    """The inverse of erf, by polynomials in -log(1 - x**2) (Giles, "Approximating the erfinv function")."""
    w = -log(fma(-x, x, 1.0))
    root = w.sqrt()
    first, *further = [(end, polynomial((root if takes_root else w) - centre, coefficients))
                       for end, takes_root, centre, coefficients in _ERF_INV[layout(x).bits]]
    tail = further[-1][1]
    for end, value in reversed(further[:-1]):
        tail = where(w < end, value, tail)
    ratio = rarely(w >= first[0], tail, first[1])      # one of 300 values of a uniform x
    value = ratio * x
    return where(abs(x).equals(1.0), copy_sign(value.like(INFINITY), x), value)


# -- gamma -----------------------------------------------------------------------------------------------------------


def _sin_pi(x: Formula) -> tuple[Formula, Formula]:
    """(|sin(pi x)|, cot(pi x)) of x >= 0, with x - round(x) exact."""
    whole = x.round()
    part = x - whole                              # in [-1/2, 1/2]
    angle = abs(part)
    far = angle > 0.25
    t = where(far, 0.5 - angle, angle) * math.pi
    sine, cosine = sin_cos(t)
    cotangent = where(far, sine / cosine, cosine / sine)
    return where(far, cosine, sine), _flip(cotangent, part < 0.0)


def _flip(value: Formula, negative: Formula) -> Formula:
    return where(negative, -value, value)


def _lgamma_positive(x: Formula) -> Formula:
    """lgamma(x), x > 0: a polynomial on [1, 3], reached by lgamma(x+1) = lgamma(x) + log(x); Stirling from 8 on."""
    bits = layout(x).bits
    below = x < 1.0
    y = where(below, x + 1.0, x)
    product = where(below, x, x.like(1.0))
    shifted = y
    for _ in range(5):                            # down to [1, 3) from below 8
        high = shifted >= 3.0
        shifted = where(high, shifted - 1.0, shifted)
        product = where(high, product * shifted, product)
    t = where(below, x - 1.0, shifted - 2.0)      # x+1 may have lost bits that count near 1
    near = polynomial(t, _LGAMMA[bits]) * t * (t + 1.0)
    logarithm = log(where(x >= 8.0, x, product))
    middle = where(below, near - logarithm, near + logarithm)
    inverse = 1.0 / x
    series = polynomial(inverse * inverse, _STIRLING if bits == 64 else _STIRLING[:3]) * inverse
    large = fma(x - 0.5, logarithm - 1.0, series + 0.41893853320467274)
    large = where(x < INFINITY, large, x)
    return where(x >= 8.0, large, middle)


def lgamma(x: Formula) -> Formula:
    """log|gamma(x)|; by reflection at negative x, where the error near its zeros is absolute, not relative."""
    size = abs(x)
    positive = _lgamma_positive(size)
    sine, _ = _sin_pi(size)
    reflected = log(math.pi / (size * sine)) - positive
    reflected = where(size < 2.0 ** -layout(x).mantissa, -log(size), reflected)
    pole = (x <= 0.0) & x.floor().equals(x)
    value = where(x < 0.0, where(pole, x.like(INFINITY), reflected), positive)
    value = where(x.equals(0.0) | size.equals(INFINITY), x.like(INFINITY), value)
    return value


def digamma(x: Formula) -> Formula:
    """The derivative of lgamma: on [1, 2] a polynomial with the factor of the root, reached by digamma(x+1) =
    digamma(x) + 1/x; an asymptotic series from 8 on. At negative x the error near the zeros is absolute."""
    bits = layout(x).bits
    negative = x <= 0.0
    y = where(negative, 1.0 - x, x)
    below = y < 1.0
    shifted = where(below, y + 1.0, y)
    total = where(below, -1.0 / y, y.like(0.0))
    for _ in range(6):                            # down to [1, 2] from below 8
        high = shifted > 2.0
        shifted = where(high, shifted - 1.0, shifted)
        total = where(high, total + 1.0 / shifted, total)
    root, root_low = _DIGAMMA_ROOT[bits]
    near = polynomial(shifted - 1.5, _DIGAMMA[bits]) * ((shifted - root) - root_low) + total
    inverse = 1.0 / y
    square = inverse * inverse
    series = polynomial(square, _DIGAMMA_SERIES if bits == 64 else _DIGAMMA_SERIES[:4]) * square
    value = where(y < 8.0, near, log(y) - fma(inverse, 0.5, series))
    _, cotangent = _sin_pi(abs(x))
    value = where(negative, value + cotangent * math.pi, value)      # cot(pi x) is odd
    value = where(negative & x.floor().equals(x), value.like(NAN), value)
    value = where(x.equals(0.0), copy_sign(value.like(INFINITY), -x), value)
    return where(x.equals(INFINITY), x, value)
