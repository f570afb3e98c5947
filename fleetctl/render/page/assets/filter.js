// What is shown: a text, or one model or node, and whether what stays as it is is hidden. The address keeps it.

const filter = { text: "", model: "", node: "", only: false };

// A row about `org/a`, about its replicas `org/a/3` or `org/a/0-2`, or about several models and this one.
function isAbout({ about, listed }, model) {
  const ids = about.startsWith(`${model}/`) ? about.slice(model.length + 1) : "";
  return about === model || listed.has(model) || /^[\d,-]+$/.test(ids);
}

// Returns the classes of the models and the names of the nodes that are asked for.
function asked() {
  const matches = ({ text }) => text.includes(filter.text.toLowerCase());
  if (filter.model) return { models: [filter.model], nodes: [] };
  if (filter.node) return { models: [], nodes: [filter.node] };
  return { models: names.filter((one) => one.kind === "model" && matches(one)).map((one) => one.name),
           nodes: names.filter((one) => one.kind === "node" && matches(one)).map((one) => one.name) };
}

function nodeTest(found) {
  const wantedNodes = new Set(found.nodes);
  const wanted = new Set(found.models.map((model) => tokens.get(model)).filter(Boolean));
  return ({ name, holds }) => wantedNodes.has(name) || [...holds].some((token) => wanted.has(token));
}

function rowTest(found) {
  if (filter.model) return (row) => isAbout(row, filter.model);
  const there = new Set(nodes.filter(({ name }) => found.nodes.includes(name)).flatMap(({ holds }) => [...holds]));
  const onThem = new Set(models.filter((model) => there.has(tokens.get(model))));
  const text = filter.text.toLowerCase();
  if (filter.node) return ({ about, words }) => onThem.has(about) || words.has(filter.node);
  return ({ about, text: whole }) => whole.includes(text) || (found.nodes.length && onThem.has(about));
}

function show() {
  const active = Boolean(filter.text || filter.model || filter.node);
  const found = asked();
  const keepRow = active ? rowTest(found) : () => true;
  const keepNode = active ? nodeTest(found) : () => true;
  for (const one of rows) one.row.hidden = !keepRow(one);
  for (const one of nodes) one.row.hidden = !keepNode(one);
  document.body.classList.toggle("only", filter.only);
  for (const part of all("section:not(#map), .changed, details")) showPart(part, active);
  tell(active);
  const exact = filter.model ? tokens.get(filter.model) : "";
  for (const link of all("a[data-model]")) {
    if (link.dataset.model === exact) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  fade(active && !found.nodes.length ? found.models.map((model) => tokens.get(model)).filter(Boolean) : []);
}

// A part with nothing that was asked for is hidden; a fold with something opens, until nothing is asked for any more.
function showPart(part, active) {
  const inside = all("tr[data-about], .node", part);
  if (!inside.length) return;
  const some = inside.some((row) => !row.hidden);
  part.hidden = active && !some;
  if (active && some && part.open === false) {
    part.open = true;
    part.dataset.opened = "";
  } else if (!active && "opened" in part.dataset) {
    part.open = false;
    delete part.dataset.opened;
  }
}

function tell(active) {
  const seen = (list) => list.filter(({ row }) => !row.hidden && !(filter.only && row.closest("[data-same]"))).length;
  const parts = [];
  const ofModels = rows.filter(({ row }) => row.closest(".of-model"));
  if (ofModels.length) parts.push(`${seen(ofModels)} of ${ofModels.length} models`);
  if (nodes.length) parts.push(`${seen(nodes)} of ${nodes.length} nodes`);
  if (!parts.length) parts.push(`${seen(rows)} of ${rows.length} rows`);
  byId("matches").textContent = active || filter.only ? parts.join(", ") : "";
}

function set(change) {
  Object.assign(filter, { text: "", model: "", node: "" }, change);
  keep();
  show();
  if (filter.text || filter.model || filter.node) goToHits();
}

// The page becomes shorter, and what is found may be above or below the window: goes to the first unless one is in it.
function goToHits() {
  const hits = [...rows, ...nodes].map((one) => one.row).filter((row) => !row.hidden && row.getClientRects().length);
  const top = byId("bar").offsetHeight;
  const isSeen = (box) => box.top >= top && box.top < innerHeight;
  if (!hits.length || hits.some((row) => isSeen(row.getBoundingClientRect()))) return;
  const first = hits.reduce((one, other) => (one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_PRECEDING ? other : one));
  first.scrollIntoView({ behavior: "instant", block: "start" });
}

// What a link or a hit scrolls to stays below the bar, which is as high as its texts need.
new ResizeObserver(() => {
  document.documentElement.style.scrollPaddingTop = `${byId("bar").offsetHeight + 16}px`;
}).observe(byId("bar"));

function keep() {
  const parts = Object.entries(filter).filter(([, value]) => value)
    .map(([key, value]) => `${key}=${encodeURIComponent(value === true ? "1" : value)}`);
  const address = parts.length ? `#${parts.join("&")}` : location.pathname + location.search;
  try { history.replaceState(null, "", address); } catch { /* an address may not be kept everywhere */ }
}

function restore() {
  const kept = Object.fromEntries(location.hash.slice(1).split("&").map((part) => part.split("=")));
  const read = (key) => { try { return decodeURIComponent(kept[key] || ""); } catch { return ""; } };
  if (!["text", "model", "node", "only"].some((key) => key in kept)) return;
  Object.assign(filter, { text: read("text"), model: read("model"), node: read("node"), only: read("only") === "1" });
  byId("filter").value = filter.model || filter.node || filter.text;
  const only = byId("only");
  if (only) only.checked = filter.only;
  show();
}
