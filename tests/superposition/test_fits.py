"""Fits find the law that made the data, agree with general solvers and published numbers, and are not too sure."""

import dataclasses
import math
import re

import numpy as np
import pytest
from scipy.optimize import curve_fit

from horosphere.errors import UserError
from horosphere.superposition.fits import EXPONENTS, Losses, fit_widths, power_law, predict, read_losses, width_exponent
from horosphere.superposition.published import published, published_file

WIDTHS = np.array([256, 512, 768, 1024, 2048, 4096, 8192.0])


def made(alpha=0.8, scale=200.0, widths=WIDTHS, noise=0.0, seed=0, families=("a", "b"), datasets=("x", "y", "z")):
    """Losses by the law, with noise that all datasets of a model share."""
    random, rows = np.random.default_rng(seed), []
    for i, family in enumerate(families):
        for m in widths:
            off = noise * random.standard_normal()
            rows += [
                (family, dataset, m, scale * m**-alpha + 1 + i + 0.3 * j + off, f"{family}{m:g}")
                for j, dataset in enumerate(datasets)
            ]
    return Losses(*map(np.array, zip(*rows, strict=True)))


# -- the toy model ----------------------------------------------------------------------------------------------------


def test_figure_1_has_the_published_slopes_over_the_widths_they_were_fitted_to():
    """1.0055 is the slope over all eight widths; 0.9840 and 0.8864 are slopes from 32 on."""
    losses = published("fig1")
    slopes = {
        name: [power_law(*losses[f"1d strong gamma=-1 {name}"][start:].T).exponent for start in (0, 2)]
        for name in ("exponential(400)", "power(1.2)", "linear")
    }
    np.testing.assert_allclose(slopes["exponential(400)"], [1.0055, 1.0767], atol=1e-3)
    np.testing.assert_allclose(slopes["power(1.2)"], [0.8527, 0.9840], atol=1e-3)
    np.testing.assert_allclose(slopes["linear"], [0.7252, 0.8864], atol=1e-3)


def test_an_exact_law_is_found_exactly():
    fit = power_law(WIDTHS, 3 * WIDTHS**-1.25)
    assert (fit.exponent, fit.scale, fit.r_squared) == pytest.approx((1.25, 3, 1))
    assert fit.high - fit.low < 1e-10


def test_one_seed_has_the_interval_of_the_regression():
    from scipy.stats import linregress, t

    x, y = np.log(WIDTHS), np.random.default_rng(0).standard_normal(7)
    fit, known = power_law(WIDTHS, np.exp(y)), linregress(x, y)
    half = t.ppf(0.975, 5) * known.stderr
    assert (fit.exponent, fit.low, fit.high) == pytest.approx((-known.slope, -known.slope - half, -known.slope + half))
    assert fit.r_squared == pytest.approx(known.rvalue**2)
    assert "one seed" in fit.how


def test_seeds_bound_the_exponent():
    noise = np.random.default_rng(0).normal(0, 0.1, (12, 7))
    fit = power_law(WIDTHS, WIDTHS**-1.0 * np.exp(noise))
    each = [power_law(WIDTHS, np.exp(row) / WIDTHS).exponent for row in noise]
    assert fit.exponent == pytest.approx(np.mean(each))
    assert (fit.high - fit.low) / 2 == pytest.approx(
        2.2 * np.std(each, ddof=1) / math.sqrt(12), rel=0.1
    )  # 2.2: Student's, 11 degrees of freedom
    assert fit.how == "bootstrap over 12 seeds"
    assert fit == power_law(WIDTHS, WIDTHS**-1.0 * np.exp(noise))
    assert "too few" in power_law(WIDTHS, np.exp(noise[:3])).how
    nothing = power_law([1, 2], [1, 0.5])
    assert math.isnan(nothing.low)
    assert "no interval" in nothing.how


@pytest.mark.parametrize("seeds", [6, 10])
def test_the_interval_holds_the_exponent_about_as_often_as_it_says(seeds):
    noise = np.random.default_rng(1).normal(0, 0.1, (300, seeds, 7))
    fits = [power_law(WIDTHS, np.exp(some) / WIDTHS, bootstrap=1000) for some in noise]
    assert np.mean([fit.low < 1 < fit.high for fit in fits]) == pytest.approx(0.95, abs=0.035)


@pytest.mark.parametrize(
    ("widths", "losses", "said"),
    [
        ([1, 2, 3], [1, 2], "shape"),
        ([4, 4], [1, 2], "two different widths"),
        ([1, 2], [1, 0], "losses must be positive"),
        ([1, 2], [1, math.nan], "losses must be positive"),
        ([0, 2], [1, 2], "widths must be positive"),
    ],
)
def test_no_slope_without_positive_losses_at_two_widths(widths, losses, said):
    with pytest.raises(UserError, match=said):
        power_law(widths, losses)


# -- language models --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    return read_losses(published_file("language-losses"))


@pytest.fixture(scope="module")
def fit(table):
    return fit_widths(table)


def parameters(model):
    known = {"gpt2": 124e6, "gpt2-medium": 355e6, "gpt2-large": 774e6, "gpt2-xl": 1558e6}
    size = model.lower().rpartition("-")[2]
    return known.get(model) or float(size[:-1]) * {"m": 1e6, "b": 1e9}[size[-1]]


def test_the_published_language_models(fit):
    assert 0.90 < fit.exponent < 0.925
    assert 465 < fit.scale < 495
    assert 5.1e-3 < fit.mse < 5.35e-3
    assert len(fit.offsets) == 16
    assert fit.profile == pytest.approx((0.79, 1.04), abs=0.02)
    assert fit.bootstrap == pytest.approx((0.55, 1.10), abs=0.05)  # far wider: losses of one model are not independent
    assert fit.left_out == pytest.approx({"1/m": 0.086, "1/m^α": 0.092}, abs=1e-3)


def test_parameters_predict_worse_than_width(table):
    counted = dataclasses.replace(table, parameters=np.array([parameters(model) for model in table.model]))
    assert fit_widths(counted, bootstrap=1).left_out == pytest.approx(
        {"1/m": 0.086, "1/m^α": 0.092, "1/N^α": 0.123}, abs=2e-3
    )


def test_chinchilla():
    models = published("chinchilla")
    law = width_exponent(models["N_million"] * 1e6, models["d_model"])
    assert (law.growth, law.exponent, law.error) == pytest.approx((2.52, 0.88, 0.05), abs=5e-3)
    with pytest.raises(UserError, match="three models"):
        width_exponent(np.array([1e6, 2e6]), np.array([64, 128]))


@pytest.mark.parametrize("published_table", [True, False])
def test_variable_projection_finds_what_a_general_solver_finds(table, published_table):
    table = table if published_table else made(noise=0.02, alpha=0.5)
    groups, group = table.groups()

    def law(m, alpha, log_scale, *offsets):
        return np.exp(log_scale) * m**-alpha + np.array(offsets)[group]

    known, _ = curve_fit(law, table.width, table.loss, [1, 5, *[2.0] * len(groups)], xtol=1e-13, ftol=1e-13)
    fit = fit_widths(table, bootstrap=1)
    assert fit.exponent == pytest.approx(known[0], rel=1e-5)
    assert fit.scale == pytest.approx(np.exp(known[1]), rel=1e-4)
    np.testing.assert_allclose(list(fit.offsets.values()), known[2:], atol=1e-5)
    assert fit.mse == pytest.approx(np.mean((law(table.width, *known) - table.loss) ** 2), rel=1e-7)


@pytest.mark.parametrize("alpha", [0.1, 0.8, 2.5])
def test_the_law_that_made_the_losses_is_found(alpha):
    fit = fit_widths(made(alpha), bootstrap=20)
    assert fit.exponent == pytest.approx(alpha, rel=1e-4)
    assert fit.scale == pytest.approx(200, rel=1e-3)
    assert fit.offsets["b", "z"] == pytest.approx(2.6, abs=1e-3)
    assert fit.left_out["1/m^α"] < 0.01 * fit.left_out["1/m"]


def test_the_unit_of_width_does_not_matter():
    table = made(noise=0.02)
    plain, scaled = (
        fit_widths(dataclasses.replace(table, width=table.width * times), bootstrap=10) for times in (1, 7)
    )
    assert scaled.exponent == pytest.approx(plain.exponent, rel=1e-6)
    assert scaled.scale == pytest.approx(plain.scale * 7**plain.exponent, rel=1e-5)
    assert scaled.profile == pytest.approx(plain.profile, rel=1e-4)


def test_the_profile_ends_where_the_f_test_does(table):
    from scipy.stats import f

    fit = fit_widths(table, bootstrap=1)
    groups, group = table.groups()
    limit = fit.mse * len(table) * (1 + f.ppf(0.95, 1, 90) / 90)
    for end in fit.profile:
        columns = np.column_stack([table.width**-end * 1e3, np.eye(len(groups))[group]])
        assert np.linalg.lstsq(columns, table.loss)[1][0] == pytest.approx(limit, rel=1e-4)


def test_the_bootstrap_depends_on_its_seed_only(table, fit):
    again = fit_widths(table, bootstrap=10)
    np.testing.assert_array_equal(again.draws, fit.draws[:10])
    assert not np.array_equal(fit_widths(table, bootstrap=10, seed=1).draws, again.draws)


def test_models_are_drawn_whole():
    """A dataset said four times tells no more of models than once: the profile believes it, the bootstrap does not."""
    once, often = (
        fit_widths(made(noise=0.03, datasets=datasets), bootstrap=200) for datasets in (("x",), ("x", "y", "z", "w"))
    )
    assert np.ptp(often.bootstrap) == pytest.approx(np.ptp(once.bootstrap), rel=1e-3)
    assert np.ptp(often.profile) < 0.7 * np.ptp(once.profile)


# -- prediction -------------------------------------------------------------------------------------------------------


def test_the_interval_holds_a_new_model_about_as_often_as_it_says():
    inside = 0
    for seed in range(30):
        table = made(noise=0.05, seed=seed)
        seen, asked = table.rows(table.model != "a2048"), table.rows((table.model == "a2048") & (table.dataset == "y"))
        prediction = predict(fit_widths(seen, bootstrap=60), 2048, "a", "y")
        inside += prediction.low < asked.loss[0] < prediction.high
    assert inside >= 26


def test_predictions_say_how_sure_they_are(fit):
    within, beyond, few = (
        predict(fit, 3000, "opt", "c4"),
        predict(fit, 90_000, "opt", "c4"),
        predict(fit, 1000, "gpt2", "pile"),
    )
    assert within.loss == pytest.approx(fit.scale * 3000**-fit.exponent + fit.offsets["opt", "c4"])
    assert all(p.low < p.loss < p.high for p in (within, beyond, few))
    assert "extrapolation" not in within.note
    assert "9.8 times beyond the widest" in beyond.note
    assert "beyond the narrowest" in predict(fit, 100, "opt", "c4").note
    assert "rests on 4 sizes" in few.note


@pytest.mark.parametrize("sizes", [3, 4])
def test_few_sizes_give_a_guess_without_an_interval(sizes):
    fit = fit_widths(made(widths=WIDTHS[:sizes], noise=0.01))
    prediction = predict(fit, 4096, "a", "x")
    assert math.isfinite(prediction.loss)
    assert (prediction.low, prediction.high) == (None, None)
    assert prediction.note.startswith(f"a guess: {sizes} sizes")
    assert all(map(math.isnan, fit.bootstrap))


def test_no_interval_where_no_model_can_be_left_out():
    """Five sizes, but three of them carry the law alone and the others have an offset each to themselves."""
    widths = {"a": WIDTHS[:3], "b": WIDTHS[3:4], "c": WIDTHS[4:5]}
    parts = [made(widths=own, families=(name,), datasets=("x",)) for name, own in widths.items()]
    fields = [field.name for field in dataclasses.fields(Losses) if field.name != "parameters"]
    fit = fit_widths(
        Losses(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields)), bootstrap=10
    )
    assert fit.sizes == 5
    assert math.isnan(fit.left_out["1/m"])
    assert predict(fit, 4096, "b", "x").low is None


def test_an_exponent_without_evidence_has_an_interval_without_an_end():
    """Three widths of one family fit any curve: the profile must not look like knowledge."""
    fit = fit_widths(made(widths=WIDTHS[:3], families=("a",), datasets=("x",)))
    assert all(map(math.isnan, fit.profile))
    noisy = fit_widths(made(widths=WIDTHS[:4], families=("a",), datasets=("x",), noise=0.05, seed=3))
    assert EXPONENTS[0] in noisy.profile or EXPONENTS[1] in noisy.profile


def test_predictions_for_what_was_not_there(fit):
    with pytest.raises(UserError, match="no losses of bloom on c4: choose opt on wikitext, "):
        predict(fit, 4096, "bloom", "c4")
    with pytest.raises(UserError, match="positive"):
        predict(fit, 0, "opt", "c4")


@pytest.mark.parametrize(
    ("families", "widths", "said"),
    [
        (("a", "b"), [512, 1024], "two widths say nothing"),
        (("a",), [512], "no family has losses at two widths"),
    ],
)
def test_too_few_widths(families, widths, said):
    with pytest.raises(UserError, match=said):
        fit_widths(made(widths=np.array(widths, float), families=families))


def test_losses_that_grow_have_no_law():
    table = made()
    with pytest.raises(UserError, match="do not fall"):
        fit_widths(dataclasses.replace(table, loss=-table.loss + 10))


# -- the file ---------------------------------------------------------------------------------------------------------


def test_a_file_of_losses(tmp_path):
    file = tmp_path / "losses.csv"
    file.write_text(
        "family, dataset, m, loss, N\na, x, 64, 3.5, 1e6\na, y, 64, 3.6, 1e6\na, x, 128, 3.0, 4e6\n",
        encoding="utf-8-sig",
    )
    table = read_losses(file)
    assert table.model.tolist() == ["a 64", "a 64", "a 128"]
    assert table.loss.tolist() == [3.5, 3.6, 3.0]
    assert table.parameters.tolist() == [1e6, 1e6, 4e6]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column family (it has none)"),
        ("family,dataset,loss\na,x,3", "no column m (it has family, dataset, loss)"),
        ("family,dataset,m,loss\n", "no rows"),
        ("family,dataset,m,loss\na,x,64,3\na,x,wide,2", 'line 3: column m is "wide"'),
        ("family,dataset,m,loss\na,x,64,-3", 'line 2: column loss is "-3"'),
        ("family,dataset,m,loss\na,x,64", 'line 2: column loss is ""'),
        ("family,dataset,m,loss\na,x,64,inf", 'line 2: column loss is "inf"'),
        ("family,dataset,m,loss\n,x,64,3", "line 2: column family is empty"),
        ("family,dataset,m,loss,model\na,x,64,3,", "line 2: column model is empty"),
        ("family,dataset,m,loss\na,x,64,3\nb,x,64,2", "column m is 64 in every row"),
    ],
)
def test_a_file_that_cannot_be_read_names_the_place(tmp_path, text, said):
    (tmp_path / "losses.csv").write_text(text)
    with pytest.raises(UserError, match=re.escape(said)) as error:
        read_losses(tmp_path / "losses.csv")
    assert "\n" not in str(error.value)


def test_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(UserError):
            read_losses(path)
