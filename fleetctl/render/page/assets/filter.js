// The filter: a text, or one model or node, and whether unchanged parts are hidden. Stored in the page's address.

const filter = { text: "", model: "", node: "", only: false };

// Whether a row is about a model `org/a`, its replicas `org/a/3` or `org/a/0-2`, or several models including it.
function isAbout({ about, listed }, model) {
  const ids = about.startsWith(`${model}/`) ? about.slice(model.length + 1) : "";
  return about === model || listed.has(model) || /^[\d,-]+$/.test(ids);
}

// Returns the names of the matching models and nodes.
function matchingNames() {
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
  const held = new Set(nodes.filter(({ name }) => found.nodes.includes(name)).flatMap(({ holds }) => [...holds]));
  const onNodes = new Set(models.filter((model) => held.has(tokens.get(model))));
  const text = filter.text.toLowerCase();
  if (filter.node) return ({ about, words }) => onNodes.has(about) || words.has(filter.node);
  return ({ about, text: rowText }) => rowText.includes(text) || (found.nodes.length && onNodes.has(about));
}

function applyFilter() {
  const active = Boolean(filter.text || filter.model || filter.node);
  const found = matchingNames();
  const keepRow = active ? rowTest(found) : () => true;
  const keepNode = active ? nodeTest(found) : () => true;
  for (const one of rows) one.row.hidden = !keepRow(one);
  for (const one of nodes) one.row.hidden = !keepNode(one);
  document.body.classList.toggle("only", filter.only);
  for (const part of all("section:not(#map), .changed, details")) showPart(part, active);
  showCounts(active);
  const exact = filter.model ? tokens.get(filter.model) : "";
  for (const link of all("a[data-model]")) {
    if (link.dataset.model === exact) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  fade(active && !found.nodes.length ? found.models.map((model) => tokens.get(model)).filter(Boolean) : []);
}

// Hides a part without matches; opens a fold with matches, and closes it again once the filter is cleared.
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

function showCounts(active) {
  const seen = (list) => list.filter(({ row }) => !row.hidden && !(filter.only && row.closest("[data-same]"))).length;
  const parts = [];
  const ofModels = rows.filter(({ row }) => row.closest(".of-model"));
  if (ofModels.length) parts.push(`${seen(ofModels)} of ${ofModels.length} models`);
  if (nodes.length) parts.push(`${seen(nodes)} of ${nodes.length} nodes`);
  if (!parts.length) parts.push(`${seen(rows)} of ${rows.length} rows`);
  byId("matches").textContent = active || filter.only ? parts.join(", ") : "";
}

function setFilter(change) {
  Object.assign(filter, { text: "", model: "", node: "" }, change);
  saveToAddress();
  applyFilter();
  if (filter.text || filter.model || filter.node) scrollToMatch();
}

// Filtering shortens the page, so all matches may be outside the window: scrolls to the first match then.
function scrollToMatch() {
  const hits = [...rows, ...nodes].map((one) => one.row).filter((row) => !row.hidden && row.getClientRects().length);
  const top = byId("bar").offsetHeight;
  const isInWindow = (box) => box.top >= top && box.top < innerHeight;
  if (!hits.length || hits.some((row) => isInWindow(row.getBoundingClientRect()))) return;
  const first = hits.reduce((one, other) => (one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_PRECEDING ? other : one));
  first.scrollIntoView({ behavior: "instant", block: "start" });
}

// Keeps scroll targets below the bar, whose height depends on its texts.
new ResizeObserver(() => {
  document.documentElement.style.setProperty("--bar", `${byId("bar").offsetHeight + 16}px`);
}).observe(byId("bar"));

function saveToAddress() {
  const parts = Object.entries(filter).filter(([, value]) => value)
    .map(([key, value]) => `${key}=${encodeURIComponent(value === true ? "1" : value)}`);
  const address = parts.length ? `#${parts.join("&")}` : location.pathname + location.search;
  try { history.replaceState(null, "", address); } catch { /* not allowed everywhere */ }
}

function restoreFromAddress() {
  const saved = Object.fromEntries(location.hash.slice(1).split("&").map((part) => part.split("=")));
  const read = (key) => { try { return decodeURIComponent(saved[key] || ""); } catch { return ""; } };
  if (!["text", "model", "node", "only"].some((key) => key in saved)) return;
  Object.assign(filter, { text: read("text"), model: read("model"), node: read("node"), only: read("only") === "1" });
  byId("filter").value = filter.model || filter.node || filter.text;
  const only = byId("only");
  if (only) only.checked = filter.only;
  applyFilter();
}
