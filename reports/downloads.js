// Downloads: a plot as it is drawn here, with its colours written out; a table as it is shown.
const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "fill-opacity",
  "stroke-opacity", "font-family", "font-size", "font-weight", "text-anchor", "display", "visibility"];

function save(name, content, type) {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function standalone(svg) {
  const copy = svg.cloneNode(true);
  const painted = [...copy.querySelectorAll("*")];
  [...svg.querySelectorAll("*")].forEach((node, index) => {
    const style = getComputedStyle(node);
    painted[index].setAttribute("style", PAINT.map((key) => `${key}:${style.getPropertyValue(key)}`).join(";"));
  });
  const { width, height } = svg.getBoundingClientRect();
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  Object.entries({ width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor })
    .forEach(([key, value]) => ground.setAttribute(key, value));
  copy.prepend(ground);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

function savePng(name, { text, width, height }) {
  const image = new Image();
  image.addEventListener("load", () => {
    const canvas = element("canvas");
    canvas.width = 2 * width;
    canvas.height = 2 * height;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(name, blob, "image/png"));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

function columnNames(table) {
  const titles = (row) => [...row.cells].flatMap((cell) => Array(cell.colSpan).fill(cell));
  const [top, below] = [...table.tHead.rows].map(titles);
  let next = 0;
  return top.map((cell) => {
    const own = cell.innerText.trim().replace(/\s+/g, " ");
    return cell.rowSpan > 1 || !below ? own : `${own} ${below[next++].innerText.trim()}`;
  });
}

function tableText(table) {
  const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const value = (cell) => {
    if (cell.querySelector(".undefined")) return "";
    const text = cell.tagName === "TH" ? cell.innerText : [...cell.childNodes].find((n) => n.textContent.trim())?.textContent ?? "";
    const plain = text.trim().replace(/\s+/g, " ").replace(/ ?#$/, "");
    return /^[\d,.]+$/.test(plain) ? plain.replaceAll(",", "") : plain;
  };
  // what stands small beside a number: its interval, of how few it is, what is to be minded
  const beside = (cell) => cell.tagName === "TD" ? (cell.querySelector(".interval")?.textContent ?? "").trim().replace(/\s+/g, " ") : "";
  const titles = columnNames(table);
  const rows = [...table.tBodies[0].rows];
  const noted = titles.map((_, at) => rows.some((row) => beside(row.cells[at])));
  const names = titles.flatMap((name, at) => noted[at] ? [name, `${name} (beside it)`] : [name]);
  // what the page strikes through or greys is told in a column of its own
  const doubts = (row) => row.matches(".invalid") ? "all" : titles.filter((_, at) => row.cells[at].matches(".struck")).join("; ");
  const shown = rows.filter((row) => !row.hidden);
  const told = (cell, at) => noted[at] ? [value(cell), beside(cell)] : [value(cell)];
  const lines = shown.map((row) => [...[...row.cells].flatMap(told), doubts(row)]);
  return [[...names, "not valid"], ...lines].map((line) => line.map(quote).join(",")).join("\n") + "\n";
}

function tool(title, action) {
  const button = element("button", "tool", title);
  button.type = "button";
  button.addEventListener("click", action);
  return button;
}

function fileName(node, place, ending) {
  const words = [document.querySelector("h1").textContent, node.closest("section").id, place].filter((word) => word !== "");
  return `${words.join("-").replace(/[^\w.]+/g, "-")}.${ending}`;
}

function offerDownloads() {
  document.querySelectorAll("figure").forEach((figure, index) => {
    const svg = figure.querySelector("svg");
    if (!svg) return;
    const name = (ending) => fileName(figure, index, ending);
    const tools = element("div", "tools");
    tools.append(tool("SVG", () => save(name("svg"), standalone(svg).text, "image/svg+xml")));
    tools.append(tool("PNG", () => savePng(name("png"), standalone(svg))));
    figure.append(tools);
  });
  document.querySelectorAll("table.sortable").forEach((table) => {
    const button = tool("CSV of the rows shown", () => save(fileName(table, "", "csv"), tableText(table), "text/csv"));
    table.closest(".scroll").after(element("div", "tools", button));
  });
}
