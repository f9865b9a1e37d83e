"use strict";
// A click on a heading sorts its table: numbers from the largest, texts from the first; a second click turns it round.
function value(row, place) {
  const cell = row.cells[place];
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  const part = cell.querySelector("summary") || cell;
  return cell.classList.contains("right") ? NaN : part.textContent;
}
function compare(a, b) {
  if (typeof a === "string") return a.localeCompare(b);
  return a - b;
}
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const body = head.closest("table").tBodies[0];
    const place = head.cellIndex;
    const first = head.classList.contains("right") ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    for (const one of head.parentElement.cells) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const rows = Array.from(body.rows, (row) => ({ row, key: value(row, place) }));
    const known = rows.filter((one) => one.key === one.key);
    known.sort((a, b) => (order === "ascending" ? compare(a.key, b.key) : compare(b.key, a.key)));
    // What has no value comes last, whatever the order.
    body.append(...known.map((one) => one.row), ...rows.filter((one) => one.key !== one.key).map((one) => one.row));
  });
}
