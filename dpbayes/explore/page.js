"use strict";
// Everything that comes from the server is put in as text.
const token = document.body.dataset.token;
const offered = JSON.parse(document.getElementById("offered").textContent);
const by = (id) => document.getElementById(id);
const names = ["epsilon", "c1", "c2", "range", "bins"];
let seen = 0, timer = null, pending = null, latest = 0;
const columns = [];

async function ask(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Token": token },
    body: JSON.stringify(body || {}),
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error || answer.statusText);
  return found;
}

function make(tag, text, parent, more) {
  const element = document.createElement(tag);
  if (text !== null) element.textContent = text;
  Object.assign(element, more || {});
  if (parent) parent.append(element);
  return element;
}

function settings() {
  const mechanism = by("mechanism").value;
  const found = { mechanism };
  for (const name of names) {
    const value = by(name).value;
    if (offered[mechanism].includes(name) && value !== "") found[name] = Number(value);
  }
  if (!by("of-adjacency").hidden) found.adjacency = by("adjacency").value;
  return found;
}

function controls() {
  const takes = offered[by("mechanism").value];
  for (const name of names) by("of-" + name).hidden = !takes.includes(name);
  by("of-adjacency").hidden = !takes.includes("epsilon");
}

function texts(parent, found, kind) {
  for (const text of found) make("p", text, parent, { className: kind });
}

async function facts() {
  const number = ++latest;
  let found;
  try { found = await ask("/facts", settings()); } catch (error) { found = { error: error.message }; }
  if (number !== latest) return;
  const place = by("facts");
  place.replaceChildren();
  if (found.error) { make("p", found.error, place, { className: "failed" }); by("run").disabled = true; return; }
  by("run").disabled = timer !== null;
  make("p", found.guarantee, place);
  texts(place, found.warnings, "warning");
  if (found.facts.length) numbers(found.facts, place);
  make("p", "The release, with these settings:", place, { className: "hint" });
  make("code", found.command, place);
}

function numbers(pairs, parent) {
  const list = make("dl", null, parent, { className: "numbers" });
  for (const [name, value] of pairs) {
    const box = make("div", null, list);
    make("dt", name, box);
    make("dd", value || "none", box);
  }
}

function table(found, parent) {
  const region = make("div", null, parent, { className: "wide", tabIndex: 0 });
  region.setAttribute("role", "region");
  region.setAttribute("aria-label", found.caption);
  const made = make("table", null, region);
  make("caption", found.caption, made);
  const head = make("tr", null, make("thead", null, made));
  for (const name of found.head) make("th", name, head, { scope: "col" });
  const body = make("tbody", null, made);
  for (const row of found.rows) line(row, body);
}

function line(row, body) {
  const tr = make("tr", null, body);
  row.forEach((cell, k) => make(k ? "td" : "th", cell, tr, k ? {} : { scope: "row" }));
}

function show(found) {
  const place = by("result");
  place.replaceChildren();
  by("found").hidden = false;
  numbers(found.numbers, place);
  texts(place, found.confidential, "warning");
  table(found.table, place);
  const pictures = make("div", null, place, { className: "pictures" });
  for (const one of found.pictures) {
    const figure = make("figure", null, pictures);
    make("img", null, figure, { src: one.src, alt: one.alt, width: one.width });
    if (one.caption) make("figcaption", one.caption, figure, { className: "hint" });
  }
}

function remember(number, asked, found) {
  by("history").hidden = false;
  const row = { "try": String(number), ...asked, ...Object.fromEntries(found.numbers) };
  for (const name of Object.keys(row)) if (!columns.includes(name)) columns.push(name);
  rows.push(row);
  const head = by("history").querySelector("thead tr");
  head.replaceChildren();
  for (const name of columns) make("th", name, head, { scope: "col" });
  const body = by("history").querySelector("tbody");
  body.replaceChildren();
  for (const one of rows) line(columns.map((name) => one[name] === undefined ? "" : String(one[name])), body);
}
const rows = [];
let asked = null;

function running(is) {
  by("run").disabled = is;
  by("cancel").disabled = !is;
  by("working").hidden = !is;
  if (is && timer === null) timer = setInterval(look, 400);
  if (!is && timer !== null) { clearInterval(timer); timer = null; }
}

async function look() {
  let found;
  try { found = await ask("/state"); } catch (error) {
    running(false);
    by("status").textContent = "The server does not answer: " + error.message;
    return;
  }
  report(found);
}

function report(found) {
  if (found.phase === "running") {
    by("status").textContent = "Try " + found.number + ": " + found.step + ", " + found.seconds + " s.";
    return;
  }
  running(false);
  if (found.number === seen) return;
  seen = found.number;
  if (found.phase === "done") {
    by("status").textContent = "Try " + found.number + " is done.";
    show(found.result);
    remember(found.number, asked, found.result);
  } else {
    by("status").textContent = found.phase === "failed" ? "Failed: " + found.error : "Cancelled.";
  }
}

by("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  asked = settings();
  try {
    report(await ask("/start", asked));
    running(true);
  } catch (error) { by("status").textContent = error.message; }
});
by("cancel").addEventListener("click", async () => report(await ask("/cancel")));
by("slider").addEventListener("input", () => {
  by("epsilon").value = Number((10 ** Number(by("slider").value)).toPrecision(2));
});
by("form").addEventListener("input", (event) => {
  if (event.target.id === "epsilon" && Number(by("epsilon").value) > 0) by("slider").value = Math.log10(Number(by("epsilon").value));
  controls();
  clearTimeout(pending);
  pending = setTimeout(facts, 250);
});
controls();
facts();
