"""`explain`: the right name, the right numbers, and words that are true of them."""

import json

import pytest
import torch

from fmean import STANDARD, GenAgg, explain, standard
from fmean.experiments.learn import Learner, Settings
from fmean.functions import Identity, Mixture, MLPAutoencoder, Power
from fmean.seen import LEVELS


def with_seen(agg, values, sizes):
    """As if it had met sets of a size between these, and elements N(values)."""
    mean, deviation = values
    quantiles = torch.distributions.Normal(mean, deviation).icdf(torch.tensor(LEVELS))
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
        assert "It has seen no data" in self.text(GenAgg())
        assert "in sets of 4 to 7" in self.text(with_seen(GenAgg(), (0.0, 1.0), (4, 7)))

    def test_of_features(self):
        assert "Each of the 6 features" in self.text(GenAgg(channels=6))

    def test_of_one_that_diverged(self):
        agg = GenAgg()
        with torch.no_grad():
            agg.alpha.fill_(torch.nan)
        assert "NaN or infinite" in self.text(agg)

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
