// What a form cannot do: follow what runs, move with the slider, copy. Nothing is stored.
const {root, page} = document.currentScript.dataset;
const byId = (id) => document.getElementById(id);

async function replace(id, path) {
  const answer = await fetch(root + path);
  if (!answer.ok || answer.headers.get("x-page") !== page) return;  // of this program alone
  byId(id).innerHTML = await answer.text();  // escaped by it
}

// Jobs: a line of progress while one runs; the page is loaded again when it has ended.
let planned = -1;
let wanted = byId("epsilon") ? byId("epsilon").value : "";
const events = new EventSource(root + "/events");
events.onmessage = (message) => {
  const {page: from, jobs} = JSON.parse(message.data);
  if (from !== page) { end(); return; }
  for (const section of document.querySelectorAll("[data-job]:not([data-quiet])")) {
    const job = jobs[section.dataset.job];
    if (section.dataset.running !== "1") continue;
    if (!job || !job.running) { location.reload(); return; }
    section.querySelector(".progress").textContent = job.progress || "at work ...";
  }
  const plan = jobs.plan;
  if (byId("at") && plan && plan.lines !== planned) { planned = plan.lines; follow(); }
};
// The program has ended: the page is not asked again, as another program may answer on its port.
function end() {
  events.close();
  document.querySelector("main").remove();
  document.querySelector("header").remove();
  document.querySelector(".gone").hidden = false;
}
events.onerror = end;

// The slider moves over the ε that are tried; another one can be typed. What is chosen is saved.
const grid = ["0.1", "0.2", "0.3", "0.5", "0.7", "1", "1.5", "2", "3", "5", "10"];
function follow() {
  replace("at", "/epsilon/at?epsilon=" + encodeURIComponent(wanted));
  replace("table", "/epsilon/table");
}
async function keep() {
  const body = new URLSearchParams({epsilon: wanted});
  await fetch(root + "/epsilon", {method: "POST", redirect: "manual", body});
  follow();
}
const slide = byId("slide");
if (slide) {
  const near = (text) => grid.reduce((best, value, k) =>
    Math.abs(Math.log(value / text)) < Math.abs(Math.log(grid[best] / text)) ? k : best, 0);
  const say = () => slide.setAttribute("aria-valuetext", "ε = " + byId("epsilon").value);
  slide.value = near(byId("epsilon").value || "1");
  say();
  slide.addEventListener("input", () => {
    wanted = byId("epsilon").value = grid[slide.value];
    say();
    follow();
  });
  byId("epsilon").addEventListener("change", () => {
    wanted = byId("epsilon").value;
    slide.value = near(wanted);
    say();
    keep();
  });
  slide.addEventListener("change", keep);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(byId(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}
