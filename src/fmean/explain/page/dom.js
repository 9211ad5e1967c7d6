// Elements, numbers and words. Names come from a model and are never read as HTML: they only ever become text.

const element = (id) => document.getElementById(id);

function h(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "style") for (const [key, part] of Object.entries(value)) made.style.setProperty(key, part);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const minus = (text) => String(text).replace("-", "−");

// Digits that count, without trailing zeros: 1.2346, 0.5, 3e−7.
function number(value, digits = 6) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  return Number(value.toPrecision(digits)).toString().replaceAll("-", "−");
}

function fixed(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  return minus((Number(value.toFixed(digits)) + 0).toFixed(digits)); // + 0: no "−0.00"
}

// Only what is 1 is said to be.
const correlation = (r) => (r < 1 && r >= 0.9995 ? (Math.floor(r * 1e4) / 1e4).toFixed(4) : fixed(r, 3));
const percent = (share) => `${Math.round(100 * share)} %`;
const words = (name) => name.replaceAll("_", " ");
const subscript = (label) => label.replace(/^([a-z])(\d+)$/, (_, letter, digits) => letter + [...digits].map((d) => "₀₁₂₃₄₅₆₇₈₉"[d]).join(""));
const several = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function median(values) {
  const sorted = [...values].sort((a, b) => a - b), half = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function count(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}
