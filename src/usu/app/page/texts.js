// Every text of the page, from the one file that has them.
let known = {};

export async function loadTexts() {
  known = (await (await fetch("static/texts.json")).json()).page;
  for (const one of document.querySelectorAll("[data-text]")) one.textContent = known[one.dataset.text];
  for (const one of document.querySelectorAll("[data-label]")) one.setAttribute("aria-label", known[one.dataset.label]);
}

/** A text with its {values}; `path` may lead into a group, as "layers.map". */
export function t(path, values = {}) {
  const found = path.split(".").reduce((group, key) => group?.[key], known) ?? path.split(".").pop();
  return Array.isArray(found) ? found : found.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

export const percent = (part, digits = 0) =>
  part > 0 && part < 0.5 * 10 ** -(digits + 2) ? `<${(10 ** -digits).toFixed(digits)}\u00a0%` : `${(100 * part).toFixed(digits)}\u00a0%`;

/** A number as short as it may be: 0.53, 170, 4e-15. */
export const short = (value) => {
  const size = Math.abs(value);
  if (value === 0) return "0";
  return size < 0.001 || size >= 10000 ? value.toExponential(0) : size >= 10 ? String(Math.round(value)) : value.toPrecision(2);
};
