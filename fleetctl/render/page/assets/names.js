// The names of the page's models and nodes, read from the page itself.
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const byId = (id) => document.getElementById(id);

const rows = all("tr[data-about]").map((row) => ({
  row, about: row.dataset.about, text: row.textContent.toLowerCase(),
  words: new Set(row.textContent.split(/[\s,]+/)), listed: new Set(all("td.name > div", row).map((one) => one.textContent)),
}));
const nodes = all(".node").map((row) => ({
  row, name: row.dataset.node, holds: new Set((row.dataset.holds || "").split(" ")),
}));
const tokens = new Map(all("a[data-model]").map((link) => [link.textContent, link.dataset.model]));

// The models of the legend and of the tables with one row per model.
const subjects = all(".of-model tr[data-about], .of-effect tr[data-about], .of-difference tr[data-about]");
const models = [...new Set([...tokens.keys(), ...subjects.map((row) => row.dataset.about)])].filter(Boolean);
const names = [
  ...models.map((name) => ({ kind: "model", name, text: name.toLowerCase() })),
  ...nodes.map(({ name }) => ({ kind: "node", name, text: name.toLowerCase() })),
];
