"use strict";

// The address: after # stands a place in the page, then what is filtered, as in #results&workload=gsm8k.
function decoded(text) {
  return new URLSearchParams(`text=${text}`).get("text"); // never throws, whatever was typed
}

function readAddress() {
  const [first, ...rest] = location.hash.slice(1).split("&");
  const hasPlace = !first.includes("=");
  const wanted = new URLSearchParams((hasPlace ? rest : [first, ...rest]).join("&"));
  return { place: hasPlace ? decoded(first) : "", wanted };
}

function writeAddress(place, { inHistory = false } = {}) {
  const form = document.getElementById("filters");
  const chosen = form ? [...new FormData(form)].filter(([, value]) => value !== "") : [];
  const parts = [encodeURIComponent(place), new URLSearchParams(chosen).toString()];
  const address = "#" + parts.filter(Boolean).join("&");
  if (inHistory) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

// A section's own fold is inside it; a row may be inside several.
function openAround(target) {
  const own = target.querySelector(":scope > details.section");
  let fold = own ?? target.closest("details");
  for (; fold; fold = fold.parentElement.closest("details")) fold.open = true;
}

function goTo(place) {
  document.querySelectorAll(".here").forEach((one) => one.classList.remove("here"));
  const target = place && document.getElementById(place);
  if (!target) return;
  openAround(target);
  target.classList.add("here");
  if (!target.hasAttribute("tabindex")) target.tabIndex = -1;
  target.focus({ preventScroll: true }); // the keyboard goes on from here
  target.scrollIntoView({ block: target.tagName === "TR" ? "center" : "start" });
}

function followAddress(form) {
  const { place, wanted } = readAddress();
  if (form) {
    form.querySelectorAll("select").forEach((select) => {
      select.value = wanted.get(select.name) ?? "";
      if (select.selectedIndex < 0) select.value = "";
    });
    applyFilters(form);
  }
  goTo(place);
}

function keepFiltersInLinks() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const place = decoded(link.getAttribute("href").slice(1));
    writeAddress(place, { inHistory: true });
    goTo(place);
  });
}
