// Keys of the pages, and the number of trajectories that have come while a table is open.
"use strict";
const rows = [...document.querySelectorAll("#rows tbody tr")];
let chosen = -1;
function choose(next) {
  if (!rows.length) return;
  rows[chosen]?.classList.remove("chosen");
  chosen = Math.max(0, Math.min(rows.length - 1, next));
  rows[chosen].classList.add("chosen");
  rows[chosen].querySelector("a")?.focus();
}
function follow(id) { document.getElementById(id)?.click(); }
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const act = {
    j: () => (rows.length ? choose(chosen + 1) : follow("next")),
    k: () => (rows.length ? choose(chosen - 1) : follow("previous")),
    n: () => follow("next"), p: () => follow("previous"), u: () => follow("up"), g: () => follow("group"),
    "/": () => document.getElementById("search")?.focus(),
  }[event.key];
  if (act) { event.preventDefault(); act(); }
});
const fresh = document.getElementById("new");
if (fresh) {
  setInterval(async () => {
    try {
      const answer = await fetch("/count" + location.search);
      const more = (await answer.json()).count - Number(fresh.dataset.count);
      fresh.hidden = more === 0;
      fresh.textContent = more > 0 ? `${more} new` : "changed";
    } catch { /* the server has ended */ }
  }, 3000);
}
