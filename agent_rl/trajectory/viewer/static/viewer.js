// Keyboard shortcuts, the colour theme, and the table, which refreshes without losing the reader's place.
"use strict";
const root = document.documentElement;
const find = (id) => document.getElementById(id);
const remembered = (() => { try { return localStorage; } catch { return {}; } })();
if (remembered.theme) root.dataset.theme = remembered.theme;

let chosen = null;
const items = () => [...document.querySelectorAll("#rows tbody tr[id], .columns article")];
function choose(item, focus = true) {
  chosen?.classList.remove("chosen");
  chosen = item;
  if (!item) return;
  item.classList.add("chosen");
  if (focus) item.querySelector("a")?.focus();
  item.scrollIntoView({ block: "nearest", inline: "nearest" });
}
function move(by) {
  const all = items();
  if (all.length) choose(all[Math.max(0, Math.min(all.length - 1, chosen ? all.indexOf(chosen) + by : 0))]);
  else follow(by > 0 ? "next" : "previous");
}
function follow(id) { find(id)?.click(); }

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const act = {
    j: () => move(1), k: () => move(-1), n: () => follow("next"), p: () => follow("previous"), u: () => follow("up"),
    g: () => follow("group"), t: () => follow(find("tokens") ? "tokens" : "trajectories"), r: () => follow("runs"), c: () => follow("compare"), d: () => follow("theme"),
    "/": () => { const filters = find("filters"); if (filters) filters.open = true; find("search")?.focus(); },
  }[event.key];
  if (act) { event.preventDefault(); act(); }
});

document.addEventListener("DOMContentLoaded", () => {
  find("theme")?.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = remembered.theme = dark ? "light" : "dark";
  });
  // leave empty fields out of the URL
  document.addEventListener("formdata", ({ formData }) => {
    for (const [name, value] of [...formData]) if (value === "") formData.delete(name);
  });
  if (matchMedia("(max-width: 62rem)").matches) find("filters")?.removeAttribute("open");
  const back = location.hash.startsWith("#row-") && find(location.hash.slice(5));
  if (back && items().includes(back)) choose(back);
  if (find("rows")?.dataset.live) setInterval(refresh, 2000);
  if (document.querySelector(".run[data-live]")) setTimeout(() => document.hidden || location.reload(), 10000);
});

// Insert new rows above, and keep the row that the reader looks at in its place on the screen.
async function refresh() {
  const table = find("rows");
  if (document.hidden) return;
  try {
    const { count } = await (await fetch("/count" + location.search)).json();
    if (String(count) === table.dataset.count) return;
    const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
    const fixed = chosen ?? items().find((row) => row.getBoundingClientRect().bottom > 0);
    const before = fixed?.getBoundingClientRect().top, focused = chosen?.contains(document.activeElement);
    const atTop = scrollY === 0 && !chosen;
    for (const id of ["rows", "count", "pages"]) find(id).replaceWith(document.adoptNode(page.getElementById(id)));
    const after = fixed && find(fixed.id);
    if (chosen) { chosen = null; if (after) choose(after, focused); }
    if (after && !atTop) scrollBy(0, after.getBoundingClientRect().top - before);
  } catch { /* the server has stopped */ }
}
