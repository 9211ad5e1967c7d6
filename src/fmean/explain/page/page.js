// Reads the data that Python wrote into the page, and builds it.

const SCHEME = "fmean-theme";

function remembered() {
  try {
    return localStorage.getItem(SCHEME);
  } catch {
    return null; // some browsers keep nothing for a page from a file
  }
}

function setTheme(name, remember) {
  document.documentElement.dataset.theme = name;
  element("theme").textContent = name === "dark" ? "Light" : "Dark";
  element("theme").setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
  element("theme").setAttribute("aria-pressed", String(name === "dark"));
  try {
    if (remember) localStorage.setItem(SCHEME, name);
  } catch {
    // then the choice holds for this visit
  }
  redrawAll();
}

const dark = matchMedia("(prefers-color-scheme: dark)");
setTheme(remembered() ?? (dark.matches ? "dark" : "light"), false);
dark.addEventListener("change", () => remembered() ?? setTheme(dark.matches ? "dark" : "light", false));
element("theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark", true));

const report = JSON.parse(element("data").textContent);
element("about").textContent = `${several(report.layers.length, "learnable aggregation")}${report.model ? ` in ${report.model}` : ""}`;
element("made").textContent = `Made by fmean ${report.version} on ${report.date}. Works without a network.`;
if (report.layers.length > 1) element("overview").append(overview(report.layers));
element("layers").append(...report.layers.map(card));
startExplorer();
addEventListener("beforeprint", () => redrawAll(true));
