"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  root.classList.add("js");

  // Light and dark: as the system has it, until the button is pressed.
  const button = document.getElementById("scheme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.scheme ? root.dataset.scheme === "dark" : system.matches);
  const offer = () => { button.textContent = isDark() ? "Light scheme" : "Dark scheme"; };
  button.addEventListener("click", () => { root.dataset.scheme = isDark() ? "light" : "dark"; offer(); });
  system.addEventListener("change", offer);
  offer();

  // Tables: rows keep their first place in `order`, so that equal keys stay as they were.
  const order = new Map();
  const tables = all(".table");
  for (const table of tables) all("tbody tr", table).forEach((row, i) => order.set(row, i));

  const compare = (column, falling) => (a, b) => {
    const [x, y] = [a, b].map((row) => row.cells[column].dataset.sort);
    if (x === undefined || y === undefined) {
      return (x === undefined) - (y === undefined) || order.get(a) - order.get(b);
    }
    const apart = Number(x) - Number(y);
    const difference = Number.isNaN(apart) ? x.localeCompare(y, "en", { numeric: true }) : apart;
    return (falling ? -difference : difference) || order.get(a) - order.get(b);
  };

  const isShown = (row) =>
    !row.hidden && !(row.dataset.tag === "baseline" && root.classList.contains("no-baselines"));

  // A group's name is written once where its rows stand together, and in every row where they do not.
  const tidy = (table) => {
    const grouped = all("thead th[data-groups]", table).some((th) => th.ariaSort !== "none");
    const rows = all("tbody tr", table);
    let previous = null;
    for (const row of rows.filter(isShown)) {
      const repeated = grouped && previous !== null && row.dataset.group === previous;
      row.classList.toggle("repeat", repeated);
      previous = row.dataset.group;
    }
    const count = table.querySelector(".count");
    const shown = rows.filter(isShown).length;
    if (count) count.textContent = shown === rows.length ? `${rows.length} rows` : `${shown} of ${rows.length} rows`;
  };

  const sortBy = (table, head) => {
    const now = head.ariaSort;
    const falling = now === "none" ? "falling" in head.dataset : now === "ascending";
    for (const other of all("thead th[aria-sort]", table)) other.ariaSort = "none";
    head.ariaSort = falling ? "descending" : "ascending";
    const body = table.querySelector("tbody");
    body.append(...all("tr", body).sort(compare(head.cellIndex, falling)));
    tidy(table);
  };
  for (const table of tables) {
    for (const head of all("thead th[aria-sort]", table)) {
      head.querySelector("button").addEventListener("click", () => sortBy(table, head));
    }
  }

  const filters = all("input.filter");
  const filter = (text) => {
    const wanted = text.trim().toLowerCase();
    for (const input of filters) if (input.value !== text) input.value = text;
    for (const row of all(".table:has(input.filter) tbody tr[data-group]")) {
      row.hidden = !row.dataset.group.toLowerCase().includes(wanted);
    }
    tables.forEach(tidy);
  };
  for (const input of filters) input.addEventListener("input", () => filter(input.value));

  const switches = all("input.hide");
  const hide = (hidden) => {
    root.classList.toggle("no-baselines", hidden);
    for (const input of switches) input.checked = hidden;
    tables.forEach(tidy);
  };
  for (const input of switches) input.addEventListener("change", () => hide(input.checked));
  if (filters.length) filter(filters[0].value);
  hide(switches.some((input) => input.checked));

  // Legends: a pressed name stands out in all plots of its group.
  for (const group of all(".plots")) {
    const names = all(".legend button", group);
    for (const name of names) {
      name.addEventListener("click", () => {
        name.ariaPressed = String(name.ariaPressed !== "true");
        const lit = new Set(names.filter((n) => n.ariaPressed === "true").map((n) => n.dataset.series));
        group.classList.toggle("chosen", lit.size > 0);
        for (const one of all("g.series", group)) one.classList.toggle("lit", lit.has(one.dataset.series));
      });
    }
  }

  // On paper everything is open.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("details:not([open])");
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => { for (const details of opened) details.open = false; });
})();
