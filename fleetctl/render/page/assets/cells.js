// The cells of the map: who holds a card, all cards of the same replica, and moving about with the arrow keys.

const inspector = byId("inspector");
const faded = new CSSStyleSheet();
const lit = new CSSStyleSheet();
document.adoptedStyleSheets = [faded, lit];
const MOST_CLASSES = 50; // beyond it nothing steps back

const withToken = (tokens) => `.${tokens.join(",.")}`;
const modelOf = new Map([...tokens].map(([model, token]) => [token, model]));
const tokenOf = (piece) => [...piece.classList].find((name) => modelOf.has(name));

function fade(models) {
  const some = models.length && models.length <= MOST_CLASSES;
  const any = withToken(models);
  const others = `.node .cell:not(${any}):not(:has(${any}))`;
  faded.replaceSync(some ? `${others}, ${others} i { --m: var(--wash); color: var(--soft); background-image: none; }
    ${others} b { color: var(--soft); } ${others} { box-shadow: inset 0 0 0 1px var(--line); }` : "");
}

// The replicas on a cell, or the one of a segment of it.
function pieces(target, cell) {
  const one = target.closest("[data-r]");
  return one ? [one] : [...cell.querySelectorAll("[data-r]")];
}

function words(cell) {
  if (cell.title) { // said in the line below instead, at once and for the keyboard, too
    cell.dataset.words = cell.title;
    cell.removeAttribute("title");
  }
  return `${cell.closest(".node").dataset.node}: ${cell.dataset.words}`;
}

function inspect(target) {
  const cell = target?.closest?.(".node .cell");
  inspector.hidden = !cell;
  if (!cell) return lit.replaceSync("");
  inspector.textContent = words(cell);
  const found = pieces(target, cell);
  const same = found.map((piece) => `[data-r="${CSS.escape(piece.dataset.r)}"]`).join();
  const kin = found.map(tokenOf).filter(Boolean);
  const rule = (any, outline) => `.node .cell:is(${any}), .node .cell:has(${any}) { outline: ${outline}; outline-offset: 1px; }`;
  lit.replaceSync((kin.length ? rule(withToken(kin), "1px dashed var(--soft)") : "")
    + (same ? rule(same, "2px solid var(--text)") : ""));
}

function ask(target) {
  const cell = target.closest(".node .cell");
  const model = cell && pieces(target, cell).map((piece) => modelOf.get(tokenOf(piece))).find(Boolean);
  if (model) pick("model", filter.model === model ? "" : model);
}

// One cell at a time can be reached with Tab; the arrow keys go on from there.
let stop = null;

function reach(cell) {
  stop?.removeAttribute("tabindex");
  stop = cell;
  cell?.setAttribute("tabindex", "0");
}

function focusCell(cell) {
  if (!cell) return;
  reach(cell);
  cell.setAttribute("role", "button");
  cell.setAttribute("aria-label", words(cell));
  cell.focus();
}

const isShown = (node) => !node.hidden && !node.closest("details:not([open])") && !(filter.only && node.closest("[data-same]"));

function below(cell, step) {
  const shown = nodes.map(({ row }) => row).filter(isShown);
  const next = shown[shown.indexOf(cell.closest(".node")) + step];
  if (!next) return null;
  const strip = cell.closest(".strip");
  const place = all(".cell", strip).indexOf(cell);
  const beside = next.querySelector(`.strip[data-side="${strip.dataset.side}"]`) || next.querySelector(".strip");
  const cells = all(".cell", beside);
  return cells[Math.min(place, cells.length - 1)] || below(next.querySelector(".cell") || cell, step);
}

function next(cell, key) {
  const cells = all(".cell", cell.closest(".node"));
  const place = cells.indexOf(cell);
  return { ArrowLeft: () => cells[place - 1], ArrowRight: () => cells[place + 1], Home: () => cells[0],
           End: () => cells.at(-1), ArrowUp: () => below(cell, -1), ArrowDown: () => below(cell, 1) }[key];
}

const map = byId("map");
if (map) {
  map.addEventListener("pointerover", (event) => inspect(event.target));
  map.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && inspect(document.activeElement));
  document.addEventListener("pointerdown", (event) => map.contains(event.target) || inspect(null));
  map.addEventListener("focusin", (event) => inspect(event.target));
  map.addEventListener("focusout", () => inspect(null));
  map.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-model]");
    if (link) {
      event.preventDefault();
      pick("model", filter.model === link.textContent ? "" : link.textContent);
    } else if (event.pointerType === "touch") inspect(event.target); // a finger cannot point without a click
    else ask(event.target);
  });
  map.addEventListener("keydown", (event) => {
    const cell = event.target.closest(".node .cell");
    if (!cell) return;
    const step = next(cell, event.key);
    if (step) focusCell(step());
    else if (event.key === "Enter" || event.key === " ") ask(cell);
    else return;
    event.preventDefault();
  });
  const first = map.querySelector(".node .cell");
  if (first) {
    first.setAttribute("role", "button");
    first.setAttribute("aria-label", words(first));
    reach(first);
  }
}

byId("bar").hidden = rows.length + nodes.length < 6; // what can be seen at a glance needs no filter
restore();
window.addEventListener("hashchange", restore);
