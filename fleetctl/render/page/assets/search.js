// The filter's input field: type a text, or choose a model or a node from the list below it.

const field = byId("filter");
const list = byId("found");
const SUGGESTED = 12;
let chosen = -1;

function suggest() {
  const text = field.value.trim().toLowerCase();
  const fitting = text ? names.filter((one) => one.text.includes(text)) : [];
  fitting.sort((one, other) => one.text.indexOf(text) - other.text.indexOf(text));
  list.replaceChildren(...fitting.slice(0, SUGGESTED).map((one, place) => option(one, place)));
  choose(-1);
  list.hidden = !fitting.length;
  field.setAttribute("aria-expanded", String(!list.hidden));
}

function option(one, place) {
  const item = document.createElement("li");
  item.id = `found-${place}`;
  item.setAttribute("role", "option");
  item.setAttribute("aria-selected", "false");
  const name = Object.assign(document.createElement("span"), { className: "key", textContent: one.name });
  const kind = Object.assign(document.createElement("span"), { className: "soft", textContent: one.kind });
  item.append(name, kind);
  item.addEventListener("mousedown", (event) => { event.preventDefault(); pick(one.kind, one.name); });
  item.one = one;
  return item;
}

function choose(place) {
  chosen = place;
  [...list.children].forEach((item, number) => item.setAttribute("aria-selected", String(number === place)));
  if (place < 0) field.removeAttribute("aria-activedescendant");
  else {
    field.setAttribute("aria-activedescendant", list.children[place].id);
    list.children[place].scrollIntoView({ block: "nearest" });
  }
}

// Filters by one model or node; an empty name clears the filter.
function pick(kind, name) {
  field.value = name;
  close();
  setFilter(name ? { [kind]: name } : {});
}

function close() {
  list.hidden = true;
  field.setAttribute("aria-expanded", "false");
  choose(-1);
}

function clear() {
  field.value = "";
  close();
  setFilter({});
}

field.addEventListener("input", () => { suggest(); setFilter({ text: field.value.trim() }); });
field.addEventListener("blur", close);
field.addEventListener("keydown", (event) => {
  const count = list.hidden ? 0 : list.children.length;
  if (event.key === "ArrowDown" && count) choose((chosen + 1) % count);
  else if (event.key === "ArrowUp" && count) choose(chosen <= 0 ? count - 1 : chosen - 1);
  else if (event.key === "Enter" && chosen >= 0) { const { one } = list.children[chosen]; pick(one.kind, one.name); }
  else if (event.key === "Enter") close();
  else if (event.key === "Escape") clear();
  else return;
  event.preventDefault();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === field) return;
  if (event.key === "/") field.focus();
  else if (event.key === "Escape") clear();
  else return;
  event.preventDefault();
});

byId("bar").addEventListener("submit", (event) => event.preventDefault());
const only = byId("only");
if (only) only.addEventListener("change", () => {
  filter.only = only.checked;
  saveToAddress();
  applyFilter();
});
