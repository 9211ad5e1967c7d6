// A card for each layer: what it does in words, its numbers, its pictures.

function sizeWords(alpha) {
  if (alpha < -0.1) return "a larger set gives less";
  if (alpha <= 0.1) return "size does not count, as in a mean";
  if (alpha < 0.9) return "between a mean and a sum";
  return alpha <= 1.1 ? "adds up, as in a sum" : "grows faster than a sum";
}

function centringWords(beta) {
  if (beta < -0.1) return "the values, with their mean added";
  if (beta <= 0.1) return "the values themselves count";
  if (beta < 0.9) return "values and deviations both count";
  return beta <= 1.1 ? "only deviations from the mean count" : "more than the mean is taken off";
}

// A scale from −1 to 2 with a mark for each value, as strong as its weight; the main one is their mean, weighted as f⁻¹
// weighs the channels, or else their median.
function gauge(symbol, kind, values, weights, mean, ends, inWords) {
  const known = values.filter((v) => v !== null);
  const weighted = weights.length === values.length && known.length === values.length;
  const main = weighted ? mean : known.length === values.length && known.length ? median(known) : null;
  const place = (v) => `${(100 * (clamp(v, -1, 2) + 1)) / 3}%`;
  const marks = known.slice(0, 400).map((v, i) =>
    h("i", { class: "mark", style: { left: place(v), opacity: weighted ? strength(weights[i]) : 0.3 } }));
  if (main !== null) marks.push(h("i", { class: "mark main", style: { left: place(main) } }));
  const spread = !weighted && known.length > 1
    ? h("small", {}, ` median of ${known.length}, ${fixed(Math.min(...known))} to ${fixed(Math.max(...known))}`)
    : weighted && known.length > 1 ? h("small", {}, ` channels: ${known.map((v) => fixed(v)).join(", ")}`) : null;
  const scale = [0, 1].map((v, i) => h("span", { class: "tick", style: { left: place(v) } }, h("b", {}, v), " ", ends[i]));
  return h("div", { class: `fact ${kind}` },
    h("div", { class: "figure" }, h("span", { class: "symbol" }, symbol), " ", h("b", {}, fixed(main)), spread),
    h("div", { class: "gauge", "aria-hidden": "true" }, marks), h("div", { class: "ticks", "aria-hidden": "true" }, scale),
    h("p", {}, main === null ? "not a number" : inWords(main)));
}

// What becomes of the result when every element is there twice, in short. Of a product, say, it is no multiple.
function twice({ kind, by }) {
  if (by === null || kind === "other" || (kind === "times" && (by <= 0 || by >= 1000))) return "–";
  if (kind === "plus") return `${by < 0 ? "−" : "+"} ${fixed(Math.abs(by))}`;
  return `× ${kind === "same" ? "1.00" : fixed(by)}`;
}

function twiceInWords({ kind, by }) {
  if (kind === "same") return "the same result, as a mean gives";
  if (twice({ kind, by }) === "–") return "another result altogether, by no fixed factor";
  if (kind === "plus") return `a result that is ${by < 0 ? "less" : "more"} by a fixed number`;
  if (Math.abs(by - 2) < 0.1) return "double the result, as a sum gives";
  return by > 1 ? (by < 2 ? "a larger result, but not double" : "more than double the result") : "a smaller result";
}

function twiceFact(layer) {
  const of = layer.features?.length ? ` (feature ${layer.feature})` : "";
  return h("div", { class: "fact" },
    h("div", { class: "figure" }, h("b", {}, twice(layer.doubling)), h("small", {}, ` with every element there twice${of}`)),
    h("p", {}, twiceInWords(layer.doubling)));
}

function legendOf(entries) {
  return h("ul", { class: "keys" }, entries.map(({ label, i, opacity = 1, dotted = false }) =>
    h("li", {}, h("i", { class: dotted ? "key dotted" : `key colour-${i % PALETTES.light.length}`, style: { opacity } }), label)));
}

function curves(layer) {
  const { curve } = layer;
  const place = h("div", { class: "chart" });
  let inverse = false;
  const buttons = ["f", "f⁻¹"].map((name, i) =>
    h("button", { type: "button", "aria-pressed": String(i === 0), onclick() {
      inverse = i === 1;
      buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(i === j)));
      redraw(place);
    } }, name));
  chart(place, `The curve of f in ${layer.name}`, () => curveFigure(curve, inverse));
  const keys = curve.channels.map(({ label, weight }, i) => ({
    label: curve.channels.length > 1 ? `${label} · ${percent(weight)}` : label, i, opacity: strength(weight),
  }));
  if (curve.standard) keys.push({ label: `f of ${words(curve.standard.label)}`, dotted: true });
  return h("figure", {}, h("figcaption", {}, "Which values matter: ",
    h("span", { class: "switch", role: "group", "aria-label": "Which curve" }, buttons)), place, legendOf(keys));
}

function ranking(layer) {
  const bars = layer.nearest.map(([name, r], i) => h("li", { class: i === 0 ? "best" : null },
    h("span", { class: "name" }, words(name)),
    h("span", { class: "bar", "aria-hidden": "true" },
      h("i", { class: r < 0 ? "negative" : null, style: { width: `${100 * Math.abs(r ?? 0)}%` } })),
    h("span", { class: "r" }, correlation(r))));
  const title = layer.features?.length ? "Correlation, mean of all features" : "Correlation with the standard aggregators";
  return h("figure", {}, h("figcaption", {}, title), h("ol", { class: "ranking" }, bars));
}

function seriesOf(label, rows) {
  const k = rows[0]?.length ?? 0;
  if (k === 0) return [];
  const column = (j) => rows.map((values) => values[j]);
  const labelled = (j) => ({ label: k > 1 ? `${label}${"₁₂₃₄"[j]}` : label, values: column(j) });
  if (k <= 4) return Array.from({ length: k }, (_, j) => labelled(j));
  const quantile = (q) => rows.map((values) => [...values].sort((a, b) => a - b)[Math.round(q * (values.length - 1))]);
  return [{ label: `${label}, median of ${k}`, values: quantile(0.5), band: { low: quantile(0.1), high: quantile(0.9) } }];
}

function historyOf(layer, { steps, alpha, beta, nearest, parameters, curves }) {
  const pictures = [];
  const add = (title, label, figure, keys) => {
    const place = chart(h("div", { class: "chart low" }), `${label} ${layer.name} during training`, figure);
    pictures.push(h("figure", {}, h("figcaption", {}, title), place, legendOf(keys)));
  };
  const keysOf = (series) => series.map(({ label }, i) => ({ label, i }));
  const both = [...seriesOf("α", alpha ?? []), ...seriesOf("β", beta ?? [])];
  if (both.length) add("α and β", "α and β of", () => linesFigure(steps, both, ""), keysOf(both));
  if (nearest?.length) {
    const names = [...new Set(nearest.map(([name]) => name))];
    add("Nearest standard aggregator", "The nearest aggregator of", () => nearestFigure(steps, nearest, names), names.map((name, i) => ({ label: words(name), i })));
  }
  const numbers = Object.entries(parameters ?? {}).map(([label, values]) => ({ label: subscript(label), values }));
  const weighs = ({ label }) => /^w[₀-₉]*$/.test(label);
  for (const [title, some] of [["Numbers of f", numbers.filter((one) => !weighs(one))], ["Weights of its channels", numbers.filter(weighs)]]) {
    if (some.length) add(title, `${title} in`, () => linesFigure(steps, some, ""), keysOf(some));
  }
  if (curves?.length) {
    const keys = curves[0].y.map((_, i) => ({ label: curves[0].y.length > 1 ? `channel ${i + 1}` : "f", i }));
    add("f, from pale at first to dark", "f in", () => pastCurvesFigure(curves), keys);
  }
  return pictures.length ? h("section", {}, h("h3", {}, "During training"), h("div", { class: "pictures four" }, pictures)) : null;
}

const nearestOfEach = (layer) =>
  count(layer.features.map((one) => (one.correlation >= 0.9 ? one.nearest : "none of the 13")));

function featuresOf(layer) {
  if (!layer.features?.length) return null;
  const counts = nearestOfEach(layer);
  const shares = counts.map(([name, n], i) => h("li", {},
    h("i", { class: `key colour-${i % PALETTES.light.length}` }), `${words(name)} `, h("b", {}, n)));
  const strip = h("div", { class: "strip", "aria-hidden": "true" }, counts.map(([, n], i) =>
    h("i", { class: `colour-${i % PALETTES.light.length}`, style: { "flex-grow": n } })));
  const column = (label) => h("th", { scope: "col" }, label);
  const table = h("table", {}, h("thead", {}, h("tr", {},
    ["feature", "nearest", "correlation", "α", "β", "set twice"].map(column))), h("tbody", {},
    layer.features.map((one, i) => h("tr", {}, h("th", { scope: "row" }, i), h("td", {}, words(one.nearest)),
      [correlation(one.correlation), fixed(one.alpha), fixed(one.beta), twice({ kind: "times", by: one.growth })].map((text) => h("td", {}, text))))));
  return h("section", {}, h("h3", {}, `Each of the ${layer.features.length} features has its own`), strip,
    h("ul", { class: "keys" }, shares),
    h("details", {}, h("summary", {}, `Table of all ${layer.features.length} features`),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Features of ${layer.name}` }, table)));
}

function card(layer, i) {
  const [name, r] = layer.nearest[0], many = layer.features?.length > 0;
  const [alpha, beta] = many ? ["alpha", "beta"].map((key) => layer.features.map((one) => one[key])) : [layer.alpha, layer.beta];
  const contour = chart(h("div", { class: "chart" }), `Contours of the aggregation of two values by ${layer.name}`,
    () => contourFigure(layer.contour.x, layer.contour.z));
  return h("section", { class: "card layer", id: `layer-${i}`, "aria-labelledby": `layer-${i}-title` },
    h("div", { class: "title" },
      h("h2", { id: `layer-${i}-title` }, layer.name, layer.kind ? h("span", { class: "kind" }, ` · ${layer.kind}`) : null),
      layer.finite ? h("p", { class: r >= 0.95 ? "pill near" : "pill" }, many ? "nearest on average: " : "nearest: ",
        h("b", {}, words(name)), ` (${correlation(r)})`) : null),
    layer.also?.length ? h("p", { class: "quiet" }, `Shared with ${layer.also.join(", ")}.`) : null,
    h("p", { class: layer.finite ? "sentence" : "message problem" }, layer.text),
    layer.finite ? pictures(layer, alpha, beta, contour) : null,
    layer.history ? historyOf(layer, layer.history) : null,
    layer.explore ? h("p", {}, h("button", { type: "button", class: "button", onclick: () => explore(layer.explore) },
      layer.weights.length > 1 ? "Open its strongest channel in the explorer" : "Open in the explorer")) : null);
}

function pictures(layer, alpha, beta, contour) {
  const many = layer.features?.length > 0;
  return [
    h("div", { class: "facts" },
      gauge("α", "alpha", alpha, many ? [] : layer.weights, layer.mean_alpha, ["mean", "sum"], sizeWords),
      gauge("β", "beta", beta, [], null, ["values", "deviations"], centringWords),
      twiceFact(layer)),
    many ? h("h3", {}, `A typical feature: ${layer.feature}`) : null,
    h("div", { class: "pictures" }, curves(layer),
      h("figure", {}, h("figcaption", {}, "The aggregation of two values {x₀, x₁}"), contour), ranking(layer)),
    featuresOf(layer),
  ];
}

function overview(layers) {
  const cell = (content) => h("td", {}, content);
  const kinds = layers.some((layer) => layer.kind);
  const nearest = (layer) => {
    if (!layer.finite) return "not a number";
    if (!layer.features?.length) return [h("b", {}, words(layer.nearest[0][0])), ` ${correlation(layer.nearest[0][1])}`];
    const counts = nearestOfEach(layer);
    return ["of its features ", ...counts.slice(0, 3).flatMap(([name, n], i) => [i ? ", " : "", `${n} `, h("b", {}, words(name))]),
      counts.length > 3 ? ", …" : ""];
  };
  const rows = layers.map((layer, i) => h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `#layer-${i}` }, layer.name)),
    kinds ? h("td", { class: "kind" }, layer.kind ?? "") : null, cell(nearest(layer)), cell(twice(layer.doubling))));
  const heads = ["layer", kinds ? "kind" : null, "nearest", "set twice"].filter(Boolean)
    .map((label) => h("th", { scope: "col", class: label === "kind" ? "kind" : null }, label));
  return h("div", { class: "scroll" }, h("table", { class: "overview" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)));
}
