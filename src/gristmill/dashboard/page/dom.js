// Building and changing elements. Texts of the run are only ever set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function make(element, options, children) {
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export const h = (tag, options = {}, ...children) => make(document.createElement(tag), options, children);
export const s = (tag, options = {}, ...children) => make(document.createElementNS(SVG, tag), options, children);
export const byId = (id) => document.getElementById(id);

// A name or a text of the run: isolated, so that its direction does not change the text around it.
export const bdi = (text) => h("bdi", { text });

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setData(element, name, value) {
  if (element.dataset[name] !== String(value)) element.dataset[name] = value;
}

export function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

// Build the content of an element again, if what it is made of has changed.
const made = new WeakMap();
export function rebuild(element, from, build) {
  const key = JSON.stringify(from);
  if (made.get(element) === key) return;
  made.set(element, key);
  element.replaceChildren(...build(from));
}

// A bar of segments: [class, amount] pairs, out of a total. Returns a function that sets them.
export function bar(label, classes) {
  const parts = classes.map((name) => h("span", { class: name }));
  const element = h("div", { class: "bar", role: "img", "aria-label": label }, ...parts);
  const set = (amounts, total, words) => {
    amounts.forEach((amount, i) => {
      const width = total > 0 ? `${Math.min(100, (100 * amount) / total).toFixed(2)}%` : "0%";
      if (parts[i].style.width !== width) parts[i].style.width = width;
    });
    const text = `${label}: ${words}`;
    if (element.getAttribute("aria-label") !== text) element.setAttribute("aria-label", text);
  };
  return { element, set };
}
