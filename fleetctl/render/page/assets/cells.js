// The cells of the map: the holders of a card, all cards of the same replica, and navigation with the arrow keys.

const inspector = byId("inspector");
const fadedStyle = new CSSStyleSheet();
const litStyle = new CSSStyleSheet();
document.adoptedStyleSheets.push(fadedStyle, litStyle);
const MOST_CLASSES = 50; // with more matching models no cell is faded

const withToken = (tokens) => `.${tokens.join(",.")}`;
const modelOf = new Map([...tokens].map(([model, token]) => [token, model]));
const tokenOf = (piece) => [...piece.classList].find((name) => modelOf.has(name));

function fade(models) {
  const some = models.length && models.length <= MOST_CLASSES;
  const any = withToken(models);
  const others = `.node .cell:not(${any}):not(:has(${any}))`;
  fadedStyle.replaceSync(some ? `${others}, ${others} i { --m: var(--wash); color: var(--soft); background-image: none; }
    ${others} b { color: var(--soft); } ${others} { box-shadow: inset 0 0 0 1px var(--line); }` : "");
}

// The replica of the segment under the pointer, or all replicas of the cell.
function pieces(target, cell) {
  const one = target.closest("[data-r]");
  return one ? [one] : [...cell.querySelectorAll("[data-r]")];
}

function describe(cell) {
  if (cell.title) { // shown in the inspector instead: without delay, and for keyboard users
    cell.dataset.description = cell.title;
    cell.removeAttribute("title");
  }
  return `${cell.closest(".node").dataset.node}: ${cell.dataset.description}`;
}

function inspect(target) {
  const cell = target?.closest?.(".node .cell");
  inspector.hidden = !cell;
  if (!cell) return litStyle.replaceSync("");
  inspector.textContent = describe(cell);
  const found = pieces(target, cell);
  const sameReplica = found.map((piece) => `[data-r="${CSS.escape(piece.dataset.r)}"]`).join();
  const models = found.map(tokenOf).filter(Boolean);
  const rule = (any, outline) => `.node .cell:is(${any}), .node .cell:has(${any}) { outline: ${outline}; outline-offset: 1px; }`;
  litStyle.replaceSync((models.length ? rule(withToken(models), "1px dashed var(--soft)") : "")
    + (sameReplica ? rule(sameReplica, "2px solid var(--text)") : ""));
}

function toggleModelOf(target) {
  const cell = target.closest(".node .cell");
  const model = cell && pieces(target, cell).map((piece) => modelOf.get(tokenOf(piece))).find(Boolean);
  if (model) pick("model", filter.model === model ? "" : model);
}

// One cell at a time can be reached with Tab; the arrow keys move from there.
let tabStop = null;

function makeTabStop(cell) {
  tabStop?.removeAttribute("tabindex");
  tabStop = cell;
  cell.setAttribute("tabindex", "0");
  cell.setAttribute("role", "button");
  cell.setAttribute("aria-label", describe(cell));
}

const isShown = (node) => !node.hidden && !node.closest("details:not([open])") && !(filter.only && node.closest("[data-same]"));

function cellInNode(cell, step) {
  const shown = nodes.map(({ row }) => row).filter(isShown);
  const next = shown[shown.indexOf(cell.closest(".node")) + step];
  if (!next) return null;
  const strip = cell.closest(".strip");
  const place = all(".cell", strip).indexOf(cell);
  const beside = next.querySelector(`.strip[data-side="${strip.dataset.side}"]`) || next.querySelector(".strip");
  const cells = all(".cell", beside);
  return cells[Math.min(place, cells.length - 1)] || cellInNode(next.querySelector(".cell") || cell, step);
}

function moveFor(cell, key) {
  const cells = all(".cell", cell.closest(".node"));
  const place = cells.indexOf(cell);
  return { ArrowLeft: () => cells[place - 1], ArrowRight: () => cells[place + 1], Home: () => cells[0],
           End: () => cells.at(-1), ArrowUp: () => cellInNode(cell, -1), ArrowDown: () => cellInNode(cell, 1) }[key];
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
    } else if (event.pointerType === "touch") inspect(event.target); // touch has no hover
    else toggleModelOf(event.target);
  });
  map.addEventListener("keydown", (event) => {
    const cell = event.target.closest(".node .cell");
    if (!cell) return;
    const move = moveFor(cell, event.key);
    if (move) {
      const target = move();
      if (target) makeTabStop(target);
      target?.focus();
    } else if (event.key === "Enter" || event.key === " ") toggleModelOf(cell);
    else return;
    event.preventDefault();
  });
  const first = map.querySelector(".node .cell");
  if (first) makeTabStop(first);
}

byId("bar").hidden = rows.length + nodes.length < 6; // a small page needs no filter
restoreFromAddress();
window.addEventListener("hashchange", restoreFromAddress);
