// Pictures, drawn by plotly when they come into view and again when the theme changes.

// Okabe and Ito's colours, which people of all kinds of colour vision tell apart; lighter ones on a dark ground.
const PALETTES = {
  light: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"],
  dark: ["#56B4E9", "#E69F00", "#2BB68E", "#E29CC4", "#F0E442", "#FF8A3D", "#E8EBF0"],
};
// Blue below 0, orange above, the ground's own shade at 0: the sign of a result shows at once.
const SCALES = {
  light: [[0, "#00507D"], [0.25, "#5FA3CC"], [0.5, "#F6F5F1"], [0.75, "#E9A06C"], [1, "#A84600"]],
  dark: [[0, "#8FD0F5"], [0.25, "#2F7EAE"], [0.5, "#20262F"], [0.75, "#B8632A"], [1, "#FFC08A"]],
};
const INK = {
  light: { text: "#4A5261", grid: "#E4E5E3", zero: "#B9BDC2", soft: "#9AA0A8", line: "rgba(20,25,35,.35)" },
  dark: { text: "#AEB6C2", grid: "#2C333E", zero: "#566070", soft: "#7A8494", line: "rgba(255,255,255,.35)" },
};

const strength = (weight) => 0.3 + 0.7 * weight; // how opaque a channel of this weight is
const theme = () => document.documentElement.dataset.theme;
const colour = (i) => PALETTES[theme()][i % PALETTES.light.length];
// Plotly reads a little HTML in its labels; here they are text.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

const charts = new Map(); // the element of each picture → what makes its data and layout, and whether it is drawn

const watcher = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => redraw(entry.target)),
  { rootMargin: "300px" },
);

function chart(place, label, figure) {
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  charts.set(place, { figure, drawn: false });
  return place;
}

// Plotly, which is large, is the last thing in the page: words and numbers need not wait for it.
addEventListener("load", () => [...charts.keys()].forEach((place) => watcher.observe(place)));

function redraw(place) {
  if (!window.Plotly) return;
  const entry = charts.get(place);
  const { data, layout } = entry.figure();
  entry.drawn = true;
  watcher.unobserve(place);
  Plotly.react(place, data, merge(base(), layout), { displayModeBar: false, responsive: true });
}

function redrawAll(undrawnToo = false) {
  for (const [place, entry] of charts) if (undrawnToo || entry.drawn) redraw(place);
}

function merge(a, b) {
  const isObject = (v) => v !== null && typeof v === "object" && !Array.isArray(v);
  const both = { ...a };
  for (const [key, value] of Object.entries(b)) both[key] = isObject(value) ? merge(a[key] ?? {}, value) : value;
  return both;
}

function base() {
  const ink = INK[theme()];
  const axis = {
    gridcolor: ink.grid, zerolinecolor: ink.zero, linecolor: ink.grid, tickcolor: ink.grid, automargin: true,
    title: { standoff: 6 }, nticks: 6,
    fixedrange: !matchMedia("(hover: hover)").matches, // on a touch screen a finger scrolls the page
  };
  return {
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink.text },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 8, r: 8, t: 8, b: 8 }, height: 280, showlegend: false, hovermode: "closest",
    xaxis: axis, yaxis: axis,
  };
}

function contourFigure(x, z, height = 280, point = null) {
  const known = z.flat().filter(Number.isFinite), low = Math.min(...known, 0), high = Math.max(...known, 0);
  // White is 0; but where all is far from 0 and differs little, white is the middle, or all would be of one colour.
  const narrow = known.length > 0 && Math.max(...known) - Math.min(...known) < 0.2 * Math.max(-low, high);
  const middle = narrow ? (Math.max(...known) + Math.min(...known)) / 2 : 0;
  const size = Math.max(...known.map((v) => Math.abs(v - middle)), 0) || 1;
  const ink = INK[theme()];
  const data = [{
    type: "contour", x, y: x, z, zmin: middle - size, zmax: middle + size, colorscale: SCALES[theme()],
    contours: { coloring: "heatmap", showlabels: true, labelfont: { size: 10, color: ink.text } },
    line: { color: ink.line, width: 0.8 }, ncontours: 16,
    colorbar: { thickness: 8, outlinewidth: 0, len: 1, nticks: 5, tickfont: { size: 10 }, tickformat: "~g", xpad: 4, ypad: 0 },
    hovertemplate: "x₀ = %{x:.3g}<br>x₁ = %{y:.3g}<br>⊕ = %{z:.4g}<extra></extra>",
  }];
  if (point) {
    data.push({
      type: "scatter", x: [point[0]], y: [point[1]], mode: "markers", hoverinfo: "skip",
      marker: { size: 11, color: "rgba(0,0,0,0)", line: { width: 2.5, color: colour(6) } },
    });
  }
  const ends = [x[0], x[x.length - 1]];
  const axis = { range: ends, showgrid: false, zeroline: false };
  return { data, layout: { height, xaxis: { ...axis, title: { text: "x₀" } }, yaxis: { ...axis, title: { text: "x₁" } } } };
}

// f or f⁻¹: each channel as strong as its weight, the nearest standard f dashed behind it.
function curveFigure(curve, inverse, height = 280) {
  const ink = INK[theme()];
  const data = curve.channels.map(({ label, weight, y, inverse: back }, i) => ({
    type: "scatter", mode: "lines", x: inverse ? back.s : curve.x, y: inverse ? back.x : y,
    line: { color: colour(i), width: 1.5 + 2 * weight }, opacity: strength(weight),
    hovertemplate: `${plain(label)}<br>%{x:.3g} → %{y:.3g}<extra></extra>`,
  }));
  if (curve.standard) {
    const { y, inverse: back } = curve.standard;
    data.unshift({
      type: "scatter", mode: "lines", x: inverse ? back.s : curve.x, y: inverse ? back.x : y, hoverinfo: "skip",
      line: { color: ink.soft, width: 5, dash: "dot" }, opacity: 0.6,
    });
  }
  const [x, y] = inverse ? ["s", "f⁻¹(s)"] : ["x", "f(x), stretched"];
  const ends = inverse ? {} : { range: [-1.1, 1.1], tickvals: [-1, 0, 1] };
  return { data, layout: { height, xaxis: { title: { text: x } }, yaxis: { title: { text: y }, ...ends } } };
}

// f at up to six steps of training.
function pastCurvesFigure(curves) {
  const last = curves.length - 1, some = Math.min(6, curves.length);
  const chosen = [...new Set(Array.from({ length: some }, (_, i) => Math.round((last * i) / Math.max(1, some - 1))))];
  const data = chosen.flatMap((i) => curves[i].y.map((y, k) => ({
    type: "scatter", mode: "lines", x: curves[i].x, y, hoverinfo: "skip",
    line: { color: colour(k), width: 1.5 }, opacity: 0.15 + (0.85 * i) / Math.max(1, last),
  })));
  const ends = { range: [-1.1, 1.1], tickvals: [-1, 0, 1] };
  return { data, layout: { height: 220, xaxis: { title: { text: "x" } }, yaxis: { title: { text: "f(x), stretched" }, ...ends } } };
}

// Numbers over the steps of training; of more than eight, the middle and the range of most.
function linesFigure(steps, series, y) {
  const mode = steps.length > 40 ? "lines" : "lines+markers";
  const data = series.flatMap(({ label, values, band }, i) => {
    const line = {
      type: "scatter", mode, x: steps, y: values, marker: { size: 4 },
      line: { color: colour(i), width: 2, dash: i < PALETTES.light.length ? "solid" : "dot" },
      hovertemplate: `${plain(label)}: %{y:.3g}<br>step %{x}<extra></extra>`,
    };
    if (!band) return [line];
    const edge = { type: "scatter", mode: "lines", x: steps, line: { width: 0 }, hoverinfo: "skip" };
    return [{ ...edge, y: band.low }, { ...edge, y: band.high, fill: "tonexty", fillcolor: `${colour(i)}33` }, line];
  });
  return { data, layout: { height: 220, xaxis: { title: { text: "step" } }, yaxis: { title: { text: y } } } };
}

// The correlation with the nearest standard aggregator over the steps, in the colour of its name.
function nearestFigure(steps, nearest, names) {
  const data = [{
    type: "scatter", mode: "lines", x: steps, y: nearest.map(([, r]) => r), hoverinfo: "skip",
    line: { color: INK[theme()].soft, width: 1 },
  }, {
    type: "scatter", mode: "markers", x: steps, y: nearest.map(([, r]) => r),
    text: nearest.map(([name]) => plain(words(name))),
    marker: { size: 6, color: nearest.map(([name]) => colour(names.indexOf(name))) },
    hovertemplate: "%{text}: %{y:.3f}<br>step %{x}<extra></extra>",
  }];
  return { data, layout: { height: 220, xaxis: { title: { text: "step" } }, yaxis: { title: { text: "correlation" } } } };
}
