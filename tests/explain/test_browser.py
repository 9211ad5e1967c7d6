"""The page in a real browser: Debian's Chromium, without a window.

Where there is none the tests are skipped, unless the variable FMEAN_BROWSER is `required`.
"""

import itertools
import json
import math
import os
import random
import shutil
import time

import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphConv

from fmean import STANDARD, GenAgg, augmented_f_mean, standard
from fmean.explain.report import report
from fmean.functions import Magnitude, SinhLinear, SinhLog

FLAGS = (
    "headless=new no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync disable-dev-shm-usage window-size=1280,900"
)
HOSTILE = ("<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>", "\"quotes' & &amp; 🦊", "x" * 300)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    try:
        from selenium import webdriver
    except ModuleNotFoundError:
        webdriver = None
    if not (chromium and driver and webdriver):
        if os.environ.get("FMEAN_BROWSER") == "required":
            pytest.fail("FMEAN_BROWSER=required, but chromium, chromedriver or selenium is missing")
        pytest.skip("needs chromium, chromedriver and selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in [*FLAGS.split(), f"user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options, webdriver.ChromeService(driver))  # a given driver: selenium looks for no other
    yield made
    made.quit()


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = nn.ModuleDict({name: GraphConv(4, 4, aggr=GenAgg()) for name in HOSTILE[:1]})
    model["per_feature"] = GraphConv(4, 4, aggr=GenAgg(channels=4))
    model["networks"] = GraphConv(4, 4, aggr=GenAgg("mlp"))
    model["maximum"] = standard("max")
    return model


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    past = {
        "alpha": [[0.1 * i, 0.0, 0.0] for i in range(9)],
        "beta": [[0.1 * i] for i in range(9)],
        "nearest": [["mean" if i < 5 else "max", 0.9 + 0.01 * i] for i in range(9)],
        "parameters": {"<b>p</b>": [1.0 + i for i in range(9)]},
    }
    history = {"steps": list(range(9)), "layers": {HOSTILE[0]: past, "per_feature": past}}
    return report(model, tmp_path_factory.mktemp("page") / "report.html", history, title=HOSTILE[1])


@pytest.fixture
def opened(browser, page):
    """The page, freshly opened at a desktop's width in light colours; at the end nothing may have gone wrong."""
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    prefer(browser, "light")
    browser.get_log("performance"), browser.get_log("browser")
    browser.get(page.as_uri())
    yield browser
    assert browser.get_log("browser") == []
    browser.execute_script("localStorage.clear()")


def prefer(browser, scheme):
    wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wanted.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def narrow(browser, width):
    size = {"width": width, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def wait(browser, script, seconds=10):
    """What the script returns, as soon as that is true."""
    until = time.monotonic() + seconds
    while not (value := browser.execute_script(script)):
        assert time.monotonic() < until, f"waited in vain for {script}"
        time.sleep(0.05)
    return value


def settle(browser):
    """Lets the page draw what it has to."""
    frames = "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))"
    browser.execute_async_script(f"const done = arguments[0]; {frames}")


def draw_all(browser):
    """Scrolls to every picture, so that it is drawn."""
    count = browser.execute_script("return document.querySelectorAll('.chart').length")
    for i in range(count):
        chart = f"document.querySelectorAll('.chart')[{i}]"
        browser.execute_script(f"{chart}.scrollIntoView({{behavior: 'instant'}})")
        wait(browser, f"return {chart}.classList.contains('js-plotly-plot')")
    return count


CONTOUR = "document.getElementById('explorer-contour')"


def show_explorer(browser):
    browser.execute_script(f"{CONTOUR}.scrollIntoView({{behavior: 'instant'}})")
    wait(browser, f"return {CONTOUR}.classList.contains('js-plotly-plot')")


# Sets the explorer as a person does, for each of many settings, and reads the result.
SET = """
    const element = (id) => document.getElementById(id);
    const enter = (id, value, event) => {
        element(id).value = value;
        element(id).dispatchEvent(new Event(event, {bubbles: true}));
    };
    return arguments[0].map(({f, numbers, ...settings}) => {
        enter('choose', f, 'change');
        for (const [id, value] of Object.entries(settings)) if (value !== null) enter(`${id}-number`, value, 'change');
        enter('numbers', numbers, 'input');
        return element('value').textContent;
    });
"""


def number(text):
    return float(text.replace("−", "-").replace("∞", "inf"))


def test_opens_from_a_file_without_errors_or_requests(opened, page):
    assert draw_all(opened) >= 4 * 2 + 2 * 3 + 2
    assert opened.execute_script("return document.querySelectorAll('.layer').length") == 4
    asked = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    urls = [one["params"]["request"]["url"] for one in asked if one["method"] == "Network.requestWillBeSent"]
    assert page.as_uri() in urls
    assert [url for url in urls if url != page.as_uri() and not url.startswith(("data:", "blob:"))] == []


def test_pictures_wait_until_they_are_in_sight(opened):
    assert not opened.execute_script(f"return {CONTOUR}.classList.contains('js-plotly-plot')")
    show_explorer(opened)
    assert opened.execute_script("return document.querySelectorAll('.chart:not(.js-plotly-plot)').length") > 0


def test_names_are_shown_as_text(opened, tmp_path):
    assert opened.title == HOSTILE[1]
    assert opened.execute_script("return document.querySelector('h1').textContent") == HOSTILE[1]
    assert opened.execute_script("return document.querySelector('.layer h2').firstChild.data") == HOSTILE[0]
    keys = opened.execute_script("return [...document.querySelectorAll('.keys li')].map((one) => one.textContent)")
    assert "<b>p</b>" in keys
    opened.get(report({name: GenAgg() for name in HOSTILE}, tmp_path / "report.html").as_uri())
    names = opened.execute_script("return [...document.querySelectorAll('.layer h2')].map((one) => one.textContent)")
    assert names == list(HOSTILE)
    assert opened.execute_script("return document.querySelectorAll('main img, main script').length") == 0
    narrow(opened, 360)
    assert opened.execute_script("return document.documentElement.scrollWidth") <= 360


def test_a_script_from_elsewhere_is_refused(opened):
    script = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
    assert opened.execute_script(script + "return window.ran === undefined")
    assert "Content Security Policy" in opened.get_log("browser")[0]["message"]


def test_a_slider_moves_the_picture_and_the_value(opened):
    from selenium.webdriver.common.keys import Keys

    show_explorer(opened)
    start = {"f": "sinh(p·x + c)", "numbers": "1 2 4", "alpha": 0.3, "beta": 0.2, "p": 1, "c": 0.5}
    for slider in ("alpha", "beta", "p", "c"):
        (value,) = opened.execute_script(SET, [start])
        settle(opened)
        z, pixels = picture(opened)
        opened.find_element("id", slider).send_keys(Keys.ARROW_RIGHT * 15)
        settle(opened)
        z_moved, pixels_moved = picture(opened)
        assert opened.execute_script("return document.getElementById('value').textContent") != value
        assert z_moved != z
        assert pixels_moved != pixels
        moved = float(opened.execute_script(f"return document.getElementById('{slider}-number').value"))
        by = {"alpha": 0.15, "beta": 0.15, "p": 10**0.15 - 1, "c": 0.75}[slider]
        assert moved == pytest.approx(start[slider] + by, abs=0.005)


def picture(browser):
    """The numbers of the explorer's contour, and how it looks."""
    z = browser.execute_script(f"return JSON.stringify({CONTOUR}.data[0].z)")
    return z, browser.find_element("id", "explorer-contour").screenshot_as_png


def random_numbers(rng):
    scale = rng.choice([0.1, 1, 10, 1000])
    x = [round(rng.gauss(0, scale), rng.randint(0, 6)) for _ in range(rng.choice([1, 2, 3, 5, 20]))]
    return [*x, 0.0] if rng.random() < 0.2 else x


def expected(setting, x):
    x = torch.tensor(x, dtype=torch.float64).unsqueeze(-1)
    if setting["f"] in STANDARD:
        agg = standard(setting["f"])
        alpha, beta = (agg.alpha if setting.get("alpha") is None else setting["alpha"], agg.beta)
        return augmented_f_mean(x, agg.f, alpha, beta if setting.get("beta") is None else setting["beta"]).item()
    f = {"sinh(p·x + c)": SinhLinear, "|x|^p": Magnitude, "sinh(p·log|x| + c)": SinhLog}[setting["f"]]().double()
    with torch.no_grad():
        f.rho.fill_(math.log(setting["p"]))
        if hasattr(f, "c"):
            f.c.fill_(setting["c"])
        return augmented_f_mean(x, f, setting["alpha"], setting["beta"]).item()


def test_typed_numbers_give_what_python_gives(opened):
    rng = random.Random(0)
    settings, numbers = [], []
    for f in [name for name in ("sinh(p·x + c)", "|x|^p", "sinh(p·log|x| + c)") for _ in range(150)]:
        ends = itertools.product((-1, 2), (-1, 2), (0.01, 100), (-10, 10))
        edge = rng.choice(list(ends)) if rng.random() < 0.2 else None
        inner = rng.uniform(-1, 2), rng.uniform(-1, 2), 10 ** rng.uniform(-2, 2), rng.uniform(-10, 10)
        alpha, beta, p, c = edge or inner
        settings.append({"f": f, "alpha": alpha, "beta": beta, "p": p, "c": None if f == "|x|^p" else c})
        numbers.append(random_numbers(rng))
    for f in STANDARD:
        for _ in range(8):
            settings.append({"f": f, "alpha": None, "beta": None})
            numbers.append(random_numbers(rng))
            settings.append({"f": f, "alpha": rng.uniform(-1, 2), "beta": rng.uniform(-1, 2)})
            numbers.append(random_numbers(rng))
    typed = [setting | {"numbers": ", ".join(map(repr, x))} for setting, x in zip(settings, numbers, strict=True)]
    shown = opened.execute_script(SET, typed)
    wrong = []
    for setting, x, text in zip(settings, numbers, shown, strict=True):
        if setting["f"] in ("min", "max", "min_magnitude", "max_magnitude"):
            setting = setting | {"alpha": 0.0}  # it counts for nothing in a limit, and the slider is off
        y = expected(setting, x)
        if number(text) != pytest.approx(y, rel=1e-7 if abs(y) > 1 else 1e-4, abs=1e-9):
            wrong.append((setting, x, text, y))
    assert not wrong, f"{len(wrong)} of {len(settings)}, such as {wrong[:5]}"


def test_a_preset_sets_its_sliders(opened):
    values = "return ['alpha', 'beta'].map((id) => document.getElementById(id).valueAsNumber)"
    for name in STANDARD:
        opened.execute_script(SET, [{"f": name, "numbers": "1 2"}])
        agg = standard(name)
        assert opened.execute_script(values) == [agg.alpha.item(), agg.beta.item()]
        assert opened.execute_script("return document.getElementById('p').disabled")


PROBLEMS = {
    "": "Type one or more numbers",
    " ,; ": "Type one or more numbers",
    "1, two, 3": "“two” is not a number. Write them as",
    "<b>1</b>": "“<b>1</b>” is not a number",
    "NaN": "“NaN” is not a number",
    "0x10": "“0x10” is not a number",
    "1e999": "“1e999” is too large",
}
MESSAGE = "return document.getElementById('message').textContent"


def test_what_is_no_number_is_said(opened):
    for text, message in PROBLEMS.items():
        assert opened.execute_script(SET, [{"f": "mean", "numbers": text}]) == ["–"]
        assert message in opened.execute_script(MESSAGE)
        assert opened.find_element("id", "numbers").get_attribute("aria-invalid") == "true"


def test_how_numbers_may_be_written(opened):
    for text in ("1 2 6", "1,2,6", " 1;2\t6 ", "+1 .2e1 6.", "−1 4 6"):
        assert opened.execute_script(SET, [{"f": "mean", "numbers": text}]) == ["3"]
        assert opened.execute_script(MESSAGE).startswith("3 numbers, mean 3")


def test_a_layer_opens_in_the_explorer(opened, model):
    opened.execute_script("document.querySelector('.layer button.button').click()")
    agg = model[HOSTILE[0]].aggr_module
    part = agg.f.channel(int(agg.f.w.argmax()))
    p = float(opened.execute_script("return document.getElementById('p-number').value"))
    assert p == pytest.approx((part.p if isinstance(part, SinhLinear) else part.q).item(), rel=1e-4)


def test_the_inverse_can_be_shown(opened):
    chart = "document.querySelector('.layer .chart')"
    opened.execute_script(f"{chart}.scrollIntoView()")
    wait(opened, f"return {chart}.classList.contains('js-plotly-plot')")
    before = opened.execute_script(f"return {chart}.layout.xaxis.title.text")
    opened.execute_script("document.querySelectorAll('.layer .switch button')[1].click()")
    assert wait(opened, f"return {chart}.layout.xaxis.title.text") != before


def ground(browser):
    colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))


def test_light_and_dark(opened, page):
    assert ground(opened) > 600
    prefer(opened, "dark")  # while the page is open
    wait(opened, "return document.documentElement.dataset.theme === 'dark'")
    assert ground(opened) < 120
    show_explorer(opened)
    ink = "return document.querySelector('.chart.js-plotly-plot').layout.font.color"
    dark_ink = opened.execute_script(ink)
    opened.find_element("id", "theme").click()
    assert ground(opened) > 600
    assert opened.execute_script(ink) != dark_ink
    opened.get(page.as_uri())  # what was chosen is kept
    assert ground(opened) > 600


def test_a_phone_needs_no_sideways_scrolling(opened):
    narrow(opened, 360)
    draw_all(opened)
    opened.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert opened.execute_script("return document.documentElement.scrollWidth") <= 360
    beyond = """return [...document.querySelectorAll('main *')].filter((one) => !one.closest('.scroll')
        && one.getBoundingClientRect().right > 361).map((one) => one.outerHTML.slice(0, 100))"""
    assert opened.execute_script(beyond) == []


def test_everything_has_a_name_and_can_be_reached_by_keyboard(opened):
    nameless = """return [...document.querySelectorAll('input, select, button, a, [role=img]')].filter((one) =>
        !(one.labels?.length || one.getAttribute('aria-label') || one.textContent.trim())).length"""
    assert opened.execute_script(nameless) == 0
    beyond = "return document.querySelectorAll('[tabindex]:not([tabindex=\"0\"], #layers)').length"
    assert opened.execute_script(beyond) == 0
