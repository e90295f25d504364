// Sorting: a button in each sortable header; the sort key is the cell's data-sort, empty last.
function cellKey(row, column) {
  return row.children[column]?.dataset.sort ?? "";
}

function compareKeys(a, b) {
  const x = Number(a), y = Number(b);
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
}

function sortTable(table, header) {
  const column = Number(header.dataset.column);
  const descending = header.getAttribute("aria-sort") === "ascending";
  table.querySelectorAll("th[aria-sort]").forEach((th) => th.removeAttribute("aria-sort"));
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((first, second) => {
    const a = cellKey(first, column), b = cellKey(second, column);
    if (a === "" || b === "") return (a === "") - (b === "");
    return descending ? compareKeys(b, a) : compareKeys(a, b);
  });
  rows.forEach((row) => row.classList.remove("first-of-group"));
  body.append(...rows);
}

function makeSortable(table) {
  table.querySelectorAll("th[data-column]").forEach((header) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sortTable(table, header));
    header.append(button);
  });
}

// Filtering: whatever carries data-variant, data-workload, data-load or data-valid follows the form.
function matches(element, wanted) {
  return Object.entries(wanted).every(([key, value]) => {
    return value === "" || !(key in element.dataset) || element.dataset[key] === value;
  });
}

// The verdict of what is chosen; where the run is too large to have one, of the workload or the load.
function chooseVerdict({ workload = "", load = "" }) {
  const parts = [...document.querySelectorAll("[data-verdict]")];
  const of = (w, l) => parts.find((part) => part.dataset.ofWorkload === w && part.dataset.ofLoad === l);
  const chosen = of(workload, load) ?? of(workload, "") ?? of("", load) ?? of("", "");
  parts.forEach((part) => { part.hidden = part !== chosen; });
}

function applyFilters(form) {
  const wanted = Object.fromEntries(new FormData(form));
  chooseVerdict(wanted);
  document.querySelectorAll("[data-workload], [data-load], [data-valid], [data-variant]").forEach((element) => {
    const show = matches(element, wanted);
    if (element instanceof SVGElement) element.classList.toggle("dimmed", !show);
    else element.hidden = !show;
  });
  const rows = [...document.querySelectorAll("#results tbody tr")];
  const shown = rows.filter((row) => !row.hidden).length;
  form.querySelector("output").value = `${shown} of ${rows.length} rows`;
}

// Requests: the first few are in the page; the others wait as data and are built when asked for.
function element(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

function answerText(answer) {
  const box = element("div", "text-box");
  box.dir = "auto";
  if (answer.split === null) box.append(answer.text);
  else {
    box.append(element("span", "same", answer.text.slice(0, answer.split)));
    box.append(element("mark", "", answer.text.slice(answer.split) || "⟨end⟩"));
  }
  return box;
}

function answerBlock(answer, variants) {
  const head = element("div", "answer-head");
  answer.by.forEach(([index, trials]) => {
    const who = element("span", `s${variants[index].slot}`);
    who.append(element("span", "swatch"), element("span", "name", variants[index].label), ` ${trials}`);
    head.append(who);
  });
  head.append(element("span", "muted", answer.facts));
  const block = element("div", "answer", head);
  if (answer.divergence) block.append(element("div", "small warn", answer.divergence));
  if (answer.tokens) block.append(element("pre", "scroll small", answer.tokens));
  block.append(answerText(answer));
  return block;
}

function textBlock(title, text) {
  const box = element("div", "text-box", text);
  box.dir = "auto";
  return element("div", "", element("div", "small muted", title), box);
}

function requestDetails(item, variants) {
  const summary = element("summary", "", element("span", "mono", item.id));
  summary.append(element("span", item.differs ? "warn" : "muted", item.verdict));
  const details = element("details", "request", summary);
  details.dataset.differs = item.differs ? "yes" : "no";
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    const body = element("div", "request-body");
    body.append(textBlock(item.prompt_title, item.prompt));
    if (item.gold !== null) body.append(textBlock("Reference answer of the data set", item.gold));
    item.answers.forEach((answer) => body.append(answerBlock(answer, variants)));
    details.append(body);
  });
  return details;
}

function offerMore(list, items, variants) {
  const button = element("button", "button more", `Show ${items.length} more`);
  button.type = "button";
  button.addEventListener("click", () => {
    button.before(...items.map((item) => requestDetails(item, variants)));
    button.remove();
  });
  if (items.length) list.append(button);
}

// On a phone only the verdict and the results are open at first.
function foldForPhones() {
  if (!matchMedia("(max-width: 44rem)").matches) return;
  document.querySelectorAll("section:not(#results) > details.section").forEach((fold) => { fold.open = false; });
}

// On paper everything is open, and afterwards as it was.
let closedOnScreen = [];

function openForPaper() {
  closedOnScreen = [...document.querySelectorAll("details:not([open])")];
  closedOnScreen.forEach((fold) => { fold.open = true; });
}

function closeAfterPaper() {
  closedOnScreen.forEach((fold) => { fold.open = false; });
  closedOnScreen = [];
}

function offerAllSections(button) {
  const folds = [...document.querySelectorAll("details.section")];
  button.addEventListener("click", () => {
    const open = folds.some((fold) => !fold.open);
    folds.forEach((fold) => { fold.open = open; });
  });
  button.hidden = false;
}

foldForPhones();
offerAllSections(document.getElementById("all-sections"));
window.addEventListener("beforeprint", openForPaper);
window.addEventListener("afterprint", closeAfterPaper);
document.querySelectorAll("table.sortable").forEach(makeSortable);
document.querySelector("#results .note")?.append(" Press a column's title to sort by it.");
const filters = document.getElementById("filters");
if (filters) {
  filters.hidden = false;
  const refilter = () => {
    applyFilters(filters);
    writeAddress(readAddress().place);
  };
  filters.addEventListener("change", refilter);
  filters.addEventListener("reset", () => setTimeout(refilter));
}
window.addEventListener("hashchange", () => followAddress(filters));
keepFiltersInLinks();
followAddress(filters);
offerDownloads();
const data = document.getElementById("request-data");
if (data) {
  const { variants, workloads } = JSON.parse(data.textContent);
  workloads.forEach(({ element: id, items }) => offerMore(document.getElementById(id), items, variants));
}
