// The explorer: f, α, β, p and c by hand; ⊕ of typed numbers and its picture follow at once.

const SLIDERS = ["alpha", "beta", "p", "c"];
const LIMITS = { alpha: [-1, 2], beta: [-1, 2], p: [0.01, 100], c: [-10, 10] };
const state = { f: "sinh(p·x + c)", alpha: 0, beta: 0, p: 1, c: 0 };
const HEIGHT = 400;
const BESIDE = ["mean", "sum", "min", "max"];

const chosen = () => FREE[state.f] ?? PRESETS[state.f];

// Numbers with spaces, commas or semicolons between them; or what is wrong with them, for a person.
function parse(text) {
  const example = "Write them as 3, 1.5, -2.";
  const parts = text.replaceAll("−", "-").split(/[\s,;]+/).filter(Boolean);
  if (parts.length === 0) return { problem: `Type one or more numbers. ${example}` };
  if (parts.length > 10000) return { problem: `That is ${parts.length} numbers; 10000 can be taken.` };
  const wrong = parts.find((part) => !/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(part));
  if (wrong !== undefined) return { problem: `“${wrong.slice(0, 30)}” is not a number. ${example}` };
  const numbers = parts.map(Number);
  const large = numbers.findIndex((x) => !Number.isFinite(x));
  if (large >= 0) return { problem: `“${parts[large].slice(0, 30)}” is too large; numbers go up to 1.8e308.` };
  return { numbers };
}

function formulaText() {
  const { f, p, c } = state;
  if (PRESETS[f]) return `f(x) = ${PRESETS[f].formula}`;
  const made = f.replace(p === 1 ? "p·" : "p", p === 1 && f.includes("p·") ? "" : number(p, 4));
  return `f(x) = ${made.replace(" + c", c === 0 ? "" : ` ${c < 0 ? "−" : "+"} ${number(Math.abs(c), 4)}`)}`;
}

function showValue() {
  const { numbers, problem } = parse(element("numbers").value);
  const bad = problem !== undefined;
  element("numbers").setAttribute("aria-invalid", String(bad));
  element("message").classList.toggle("problem", bad);
  const beside = element("beside");
  beside.replaceChildren();
  if (bad) {
    element("message").textContent = problem;
    element("value").textContent = "–";
    delete element("value").dataset.value;
    return null;
  }
  const y = aggregate(numbers, chosen().make(state), state.alpha, state.beta);
  const mu = aggregate(numbers, identity(), 0, 0);
  element("message").textContent = `${several(numbers.length, "number")}, mean ${number(mu, 4)}`;
  element("value").textContent = number(y, 10);
  element("value").dataset.value = y; // as a machine reads it
  for (const name of BESIDE) {
    const { make, alpha, beta } = PRESETS[name];
    beside.append(h("div", {}, h("dt", {}, name), h("dd", {}, number(aggregate(numbers, make(), alpha, beta), 4))));
  }
  return numbers;
}

// Wide enough for the numbers, where they are of a size that makes a picture.
function reach(numbers) {
  const largest = Math.max(...(numbers ?? []).slice(0, 10000).map(Math.abs), 1);
  return largest <= 100 ? Math.ceil(largest) : 3;
}

function grid(end, n) {
  return Array.from({ length: n }, (_, i) => (2 * end * i) / (n - 1) - end);
}

function explorerContour() {
  const numbers = parse(element("numbers").value).numbers;
  const f = chosen().make(state), x = grid(reach(numbers), 49);
  const z = x.map((b) => x.map((a) => aggregate([a, b], f, state.alpha, state.beta)));
  const drawable = z.map((line) => line.map((v) => (Number.isFinite(v) ? v : null)));
  return contourFigure(x, drawable, HEIGHT, numbers?.length === 2 ? numbers : null);
}

function explorerCurve() {
  const f = chosen().make(state), x = grid(reach(parse(element("numbers").value).numbers), 201);
  const m = x.reduce((most, v) => Math.max(most, f.bound(v)), -Infinity);
  let y = x.map((v) => (f.limit ? f.bound(v) : f.scaled(v, m)));
  if (Math.sign(f.bound(1)) < 0 && !f.limit) y = x.map((v) => 1 / Math.max(Math.abs(v), 0.05)); // 1/|x|, cut off near 0
  y = y.map((v) => (v < -1e29 ? null : v)); // log 0
  const known = y.filter((v) => v !== null), low = Math.min(...known), high = Math.max(...known);
  const stretched = y.map((v) => (v === null ? null : (2 * (v - low)) / (high - low || 1) - 1));
  const label = formulaText();
  return curveFigure({ x, channels: [{ label, weight: 1, y: stretched, inverse: null }] }, false, HEIGHT);
}

let waiting = false;
function update() {
  element("formula").textContent = formulaText();
  showValue();
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const id of ["explorer-contour", "explorer-curve"]) if (charts.get(element(id)).drawn) redraw(element(id));
  });
}

// Shows the state. A slider that is being moved keeps its place: p is rounded, and would hold it back.
function place(moved = null) {
  element("choose").value = state.f;
  for (const name of SLIDERS) {
    const value = state[name], used = chosen().uses.includes(name);
    if (name !== moved) element(name).value = name === "p" ? Math.log10(value) : value;
    element(name).setAttribute("aria-valuetext", number(value, 4));
    element(`${name}-number`).value = Number(value.toPrecision(12));
    for (const input of [element(name), element(`${name}-number`)]) input.disabled = !used;
    element(name).closest(".slider").classList.toggle("unused", !used);
  }
  update();
}

function choose(f) {
  state.f = f;
  if (PRESETS[f]) Object.assign(state, { alpha: PRESETS[f].alpha, beta: PRESETS[f].beta });
  place();
}

function explore(settings) {
  Object.assign(state, settings);
  for (const name of SLIDERS) state[name] = clamp(state[name], ...LIMITS[name]);
  place();
  element("explorer").scrollIntoView();
  element("choose").focus({ preventScroll: true });
}

function startExplorer() {
  const options = (names) => names.map((name) => h("option", { value: name }, words(name)));
  element("choose").append(
    h("optgroup", { label: "f with parameters" }, options(Object.keys(FREE))),
    h("optgroup", { label: "Standard aggregators" }, options(Object.keys(PRESETS))));
  element("choose").addEventListener("change", (event) => choose(event.target.value));
  for (const name of SLIDERS) {
    element(name).addEventListener("input", (event) => {
      const value = Number(event.target.value);
      state[name] = name === "p" ? Number((10 ** value).toPrecision(3)) : value;
      place(name);
    });
    element(`${name}-number`).addEventListener("change", (event) => {
      const value = event.target.valueAsNumber;
      if (Number.isFinite(value)) state[name] = clamp(value, ...LIMITS[name]);
      place();
    });
  }
  element("numbers").addEventListener("input", update);
  element("controls").addEventListener("submit", (event) => event.preventDefault());
  chart(element("explorer-contour"), "Contours of the aggregation of two values, for the chosen f, α, β, p and c", explorerContour);
  chart(element("explorer-curve"), "The curve of the chosen f", explorerCurve);
  place();
}
