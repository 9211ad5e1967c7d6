"""`explain`: the right name, the right numbers, and words that are true of them."""

import json
import math
import re

import pytest
import torch

from fmean import STANDARD, GenAgg, explain, standard
from fmean.experiments.learn import Learner, Settings
from fmean.functions import Identity, Mixture, MLPAutoencoder, Power
from fmean.seen import LEVELS


def with_seen(agg, values, sizes):
    """As if it had met sets of a size between these, and elements N(values)."""
    mean, deviation = values
    quantiles = mean + deviation * torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(LEVELS))
    agg.seen.values.copy_(quantiles)
    agg.seen.sizes.copy_(torch.linspace(*sizes, len(LEVELS)))
    agg.seen.looks.fill_(1)
    return agg


def learnable(name):
    """A standard aggregator as a GenAgg that could learn, and hence keeps what it meets."""
    fixed = standard(name)
    return GenAgg(name, fixed.alpha.item(), fixed.beta.item())


class TestNearest:
    @pytest.mark.parametrize("name", STANDARD)
    def test_a_standard_aggregator_is_itself(self, name):
        e = explain(standard(name))
        assert e.nearest[0] == (name, pytest.approx(1.0))
        assert [r for _, r in e.nearest] == sorted((r for _, r in e.nearest), reverse=True)
        assert sorted(dict(e.nearest)) == sorted(STANDARD)

    @pytest.mark.parametrize("name", STANDARD)
    def test_also_on_sets_of_one_size(self, name):
        """Mean and sum, or root mean square and euclidean norm, are told apart by α then."""
        e = explain(with_seen(learnable(name), (1.0, 2.0), (8, 8)))
        assert e.nearest[0][0] == name

    def test_learned_aggregators_are_named(self):
        learner = Learner(Settings(steps=600))
        for _ in learner.train():
            pass
        learned = learner.result()
        right = [one.target for one in learned if explain(one.agg).nearest[0][0] == one.target]
        assert len(learned) == 13
        assert len(right) >= 12, set(STANDARD) - set(right)

    @pytest.mark.parametrize("name", ["max", "min", "mean", "sum"])
    def test_the_plain_one_is_named_where_two_are_the_same(self, name):
        """Of what is never negative, as after a ReLU, max and max magnitude are."""
        agg = learnable(name)
        agg(torch.randn(500, 1).relu(), torch.arange(500) // 5)
        assert explain(agg).nearest[0][0] == name

    def test_the_range_that_was_met_counts(self):
        """|x| and x are the same on positive data, and not on data of both signs."""
        agg = GenAgg("root_mean_square", learn_alpha=True)
        agg.f.p = 1.0  # Σ|x|/n
        assert dict(explain(with_seen(agg, (20.0, 1.0), (2, 9))).nearest)["mean"] > 0.999
        assert dict(explain(with_seen(agg, (0.0, 1.0), (2, 9))).nearest)["mean"] < 0.2


class TestNumbers:
    @pytest.mark.parametrize(
        ("name", "growth"), [("mean", 1), ("sum", 2), ("max", 1), ("root_mean_square", 1), ("euclidean_norm", 2**0.5)]
    )
    def test_growth(self, name, growth):
        assert explain(standard(name)).growth == pytest.approx(growth, rel=1e-6)

    def test_influence(self):
        assert explain(standard("max")).influence["largest"] == pytest.approx(1)
        assert explain(standard("min")).influence["smallest"] == pytest.approx(1)
        shares = explain(standard("mean")).influence
        assert shares["largest"] == pytest.approx(shares["equal"]) == pytest.approx(shares["least magnitude"])

    def test_evenness(self):
        assert explain(standard("product")).evenness == pytest.approx(1)
        assert explain(standard("mean")).evenness < 0.9
        assert explain(standard("standard_deviation")).evenness < 0.9

    @pytest.mark.parametrize("f", ["sinh", "mlp", "invertible"])
    @pytest.mark.parametrize("channels", [1, 5])
    def test_any_f_and_plain_numbers(self, f, channels):
        agg = GenAgg(f, channels=channels)
        agg(torch.randn(50, 5), torch.arange(50) // 5)
        e = explain(agg, "layer")
        content = json.loads(json.dumps(e.to_dict(), allow_nan=False))
        assert content["name"] == "layer"
        assert content["seen"]
        assert len(content["nearest"]) == 13
        assert len(content["features"]) == (5 if channels > 1 else 0)
        assert len(content["curve"]["channels"]) == getattr(agg.f, "k", 1)
        assert len(content["contour"]["z"]) == len(content["contour"]["x"])

    def test_the_contour_is_the_aggregation(self):
        content = explain(standard("max")).to_dict()["contour"]
        for i in (0, 7, 40):
            for j in (3, 25):
                assert content["z"][i][j] == pytest.approx(max(content["x"][i], content["x"][j]))

    def test_alpha_and_beta(self):
        e = explain(GenAgg(MLPAutoencoder(), alpha=0.25, beta=0.5))
        assert (e.alpha, e.beta) == (0.25, 0.5)

    def test_also_without_gradients_and_in_half_precision(self):
        with torch.inference_mode():
            assert explain(standard("max")).influence["largest"] == pytest.approx(1)
        agg = GenAgg().half()
        agg.seen.look(torch.randn(70_000, 1).half(), torch.zeros(70_000, dtype=torch.long), dim_size=1)
        assert agg.seen.sizes.isfinite().all()
        assert explain(agg).range.sizes[2] == 65504

    @pytest.mark.parametrize("middle", [0.0, 1000.0])
    @pytest.mark.parametrize("width", [0.0, 1e-2, 1.0, 1e3])
    @pytest.mark.parametrize("name", ["max", "min", "max_magnitude", "log_sum_exp", "sinh"])
    def test_curves_can_be_drawn_wherever_the_data_lies(self, name, width, middle):
        agg = with_seen(GenAgg("sinh") if name == "sinh" else learnable(name), (middle, width), (2, 5))
        drawn = explain(agg).to_dict()
        assert len(set(drawn["curve"]["x"])) == len(drawn["curve"]["x"])
        if name != "sinh":
            y = [v for v in drawn["curve"]["standard"]["y"] if v is not None]
            assert len(y) > 60
            assert len(set(drawn["contour"]["x"])) == 41
        if name == "max" and width:  # steep at the right: for most of x it is near its least
            assert sum(v < -0.8 for v in y) > 60

    def test_leaves_the_aggregation_as_it_is(self):
        agg = GenAgg("mlp")
        state = {name: value.clone() for name, value in agg.state_dict().items()}
        with torch.no_grad():
            explain(agg)
        assert agg.training
        assert all(
            torch.equal(state[name], value) for name, value in agg.state_dict().items() if "inversion" not in name
        )


class TestWords:
    def text(self, agg):
        return explain(agg).text

    def test_of_some_standard_ones(self):
        assert "max in all but name" in self.text(standard("max"))
        assert "the largest element decides: it carries 100%" in self.text(standard("max"))
        assert "twice the elements, twice the result" in self.text(standard("sum"))
        assert "with every element twice the result is the same" in self.text(standard("mean"))
        assert "deviations from the set's mean alone" in self.text(standard("standard_deviation"))
        assert "only their magnitudes count" in self.text(standard("harmonic_mean"))
        assert "only their magnitudes count" not in self.text(standard("standard_deviation"))

    def test_of_one_that_is_none_of_them(self):
        half = GenAgg(Mixture([Identity(), Power(2)]))  # (mean + root mean square)/2
        assert "This resembles mean" in self.text(half)
        assert "none of the 13 standard aggregators: the nearest" in self.text(GenAgg())

    def test_of_what_it_has_met(self):
        assert "It kept no record of data" in self.text(GenAgg())
        near = self.text(with_seen(GenAgg(), (1000.0, 0.01), (4, 7)))
        assert "elements from 999.97 to 1000, in sets" in near
        assert "in sets of 4 to 7" in self.text(with_seen(GenAgg(), (0.0, 1.0), (4, 7)))

    def test_of_features(self):
        text = self.text(GenAgg(channels=6))
        assert "Each of the 6 features" in text
        assert re.search(r"Feature \d is typical: [a-z]", text)

    def test_of_the_size_of_a_set(self):
        """A log-sum-exp of twice the elements is log 2 more, wherever they lie; a product is another one altogether."""
        for location in (0.0, -2.0, -10.0):
            e = explain(with_seen(learnable("log_sum_exp"), (location, 1.0), (1, 9)))
            assert (e.doubling.kind, e.doubling.by) == ("plus", pytest.approx(math.log(2)))
            assert "with every element twice the result is 0.69 more" in e.text
        assert "by no fixed factor" in self.text(standard("product"))

    def test_of_one_that_gives_the_same_for_all(self):
        agg = GenAgg()
        agg(torch.zeros(50, 3), torch.arange(50) // 5)
        e = explain(agg)
        assert {r for _, r in e.nearest} == {0.0}
        assert "the same result for all sets" in e.text
        assert "met only 0, in sets of 5" in e.text

    def test_of_one_that_diverged(self):
        agg = GenAgg()
        with torch.no_grad():
            agg.alpha.fill_(torch.nan)
        e = explain(agg)
        assert "NaN or infinite" in e.text
        assert {r for _, r in e.nearest} == {0.0}
        assert json.loads(json.dumps(e.to_dict(), allow_nan=False))["mean_alpha"] is None

    def test_printed(self):
        shown = str(explain(standard("min"), "conv1"))
        assert shown.startswith("conv1: α = 0.00, β = 0.00, f = e^(p·x), p → −∞")
        assert "Nearest: min 1.0000" in shown


@pytest.mark.parametrize("suffix", ["png", "svg"])
@pytest.mark.parametrize("agg", [standard("harmonic_mean"), GenAgg("mlp"), GenAgg(channels=3)], ids=["h", "mlp", "c"])
def test_a_picture(agg, suffix, tmp_path):
    path = explain(agg, "$layer_1^{").plot(tmp_path / "new" / f"e.{suffix}")
    assert path.stat().st_size > 5000


def test_bad_input():
    with pytest.raises(TypeError, match="agg must be a GenAgg, got Linear"):
        explain(torch.nn.Linear(1, 1))
