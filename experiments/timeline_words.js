"use strict";
// The words around the picture: heading, legend, and a list of the lanes for who cannot see it.

/** Fill the heading. */
function writeHeading() {
  const title = `Timeline of ${run.system}`;
  document.title = title;
  byId("title").textContent = title;
  byId("setting").textContent = run.setting;
  byId("numbers").textContent = run.numbers;
  byId("notes").textContent = run.notes.join(" ");
  byId("notes").hidden = run.notes.length === 0;
  picture.setAttribute("aria-label", `${title}: requests, KV use and queue of every instance over time`);
}

/** Add an entry to the legend: a small drawing, and what it means. */
function explain(text, wide, drawing) {
  const entry = document.createElement("span"), canvas = document.createElement("canvas");
  const ratio = devicePixelRatio || 1;
  canvas.width = wide * ratio;
  canvas.height = 14 * ratio;
  canvas.style.width = `${wide}px`;
  canvas.style.height = "14px";
  const brush = canvas.getContext("2d");
  brush.scale(ratio, ratio);
  drawing((colour, x, y, w, h) => {
    brush.fillStyle = colour;
    brush.fillRect(x, y, w, h);
  });
  entry.append(canvas, text);
  byId("legend").append(entry);
}

function writeLegend() {
  const shown = [...new Set(run.tiers.map((tier) => Math.min(tier, PHASES.length - 1)))];
  for (const tier of shown) {
    const more = tier === PHASES.length - 1 && Math.max(...run.tiers) > tier ? " and up" : "";
    const name = run.tiers.length > 1 ? `tier ${tier}${more}: ` : "";
    explain(`${name}queued, prefill, decode`, 66, (fill) => {
      fill(PHASES[tier].queued, 0, 1, 22, 12);
      fill(PHASES[tier].prefill, 22, 1, 22, 12);
      fill(PHASES[tier].decode, 44, 1, 22, 12);
    });
  }
  const light = PHASES[shown[0] ?? 0].queued;
  explain("preempted, then waiting to be recomputed", 30, (fill) => {
    fill(light, 2, 1, 28, 12);
    fill(run.mark, 2, 6.5, 28, 1);
    fill(run.mark, 1, 1, 3, 12);
  });
  explain("KV blocks in use, share of the instance's; preemptions on top", 30, (fill) => {
    fill(KV_FILL, 0, 5, 30, 9);
    fill(KV_LINE, 0, 5, 30, 1);
    for (const x of [8, 13, 20]) fill(run.mark, x, 0, 1.5, 5);
  });
  explain("requests waiting", 30, (fill) => {
    fill(FAINT, 0, 5, 30, 9);
    fill(QUEUE_LINE, 0, 5, 30, 1);
  });
}

/** List the lanes in words. */
function writeLanes() {
  for (const lane of run.lanes) {
    const item = document.createElement("li");
    const peak = (100 * Math.max(...lane.used)) / lane.kv_blocks;
    item.dataset.instance = lane.instance;
    item.textContent =
      `instance ${lane.instance}: ${plural(lane.requests, "request")}, KV use up to ${peak.toFixed(0)} %, ` +
      `up to ${count(Math.max(...lane.waiting))} waiting, ${plural(lane.preemptions.at(-1), "preemption")}`;
    byId("lanes").append(item);
  }
}

writeHeading();
writeLegend();
writeLanes();
const asked = new URLSearchParams(location.hash.slice(1));
if (asked.has("from") && asked.has("to")) show(Number(asked.get("from")) * SECOND, Number(asked.get("to")) * SECOND);
resize();
