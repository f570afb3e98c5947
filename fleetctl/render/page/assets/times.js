// Times as "5 minutes ago", by the reader's clock; the exact time is the title. It also stays in the page, and the style
// that hides it is not part of it: print, a copied row, and a saved page opened without scripts have the exact time.
"use strict";

const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60]];
const timeStyle = new CSSStyleSheet();
timeStyle.replaceSync(`@media screen {
  time[data-ago] > span { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  time[data-ago]::after { content: attr(data-ago); }
}`);
document.adoptedStyleSheets.push(timeStyle);

function ago(seconds) {
  const [unit, size] = UNITS.find(([, least]) => Math.abs(seconds) >= least) || ["", 0];
  if (!size) return "just now"; // also for a clock that is some seconds behind
  const count = Math.floor(Math.abs(seconds) / size);
  return `${count} ${unit}${count === 1 ? "" : "s"} ${seconds < 0 ? "from now" : "ago"}`;
}

function showTimes() {
  for (const time of document.querySelectorAll("time")) {
    time.dataset.ago = ago((Date.now() - Date.parse(time.dateTime)) / 1000);
  }
}

showTimes();
setInterval(showTimes, 20000);
document.addEventListener("visibilitychange", showTimes); // a hidden page gets few timers
