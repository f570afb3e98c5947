// The page of a watch: the server reports a new page and the time of its last look. Open folds stay open.

const live = document.body.dataset.live;
const folds = () => all("details");
const opened = "fleetctl-open";

function keepFolds() {
  try { sessionStorage.setItem(opened, JSON.stringify(folds().map((one) => one.open))); } catch { /* not everywhere */ }
}

function restoreFolds() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(opened) || "[]");
    if (kept.length === folds().length) folds().forEach((one, number) => { one.open = kept[number]; });
  } catch { /* not everywhere */ }
}

restoreFolds();
const events = new EventSource(`/events?have=${live}`);
events.addEventListener("looked", ({ data }) => {
  const fact = all("#facts dt").find((one) => one.textContent === "last look");
  const time = fact?.nextElementSibling.querySelector("time");
  if (!time) return;
  time.dateTime = time.title = time.firstChild.textContent = data;
  showTimes();
});
events.addEventListener("changed", () => {
  events.close();
  keepFolds();
  location.reload();
});
// An answer other than 200, for example from a proxy while the watch restarts, closes an EventSource permanently.
events.addEventListener("error", () => {
  if (events.readyState === EventSource.CLOSED) setTimeout(() => { keepFolds(); location.reload(); }, 30000);
});
addEventListener("pageshow", ({ persisted }) => { if (persisted) location.reload(); });
addEventListener("pagehide", () => events.close());
