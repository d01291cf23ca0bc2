"use strict";
// The run: parsed data, which requests stand in which row, and how numbers are written.
// Times are whole microseconds from the start of the trace; null: never happened.

addEventListener("error", (event) => {
  const fault = document.getElementById("fault");
  fault.textContent = `This page has a fault: ${event.message}`;
  fault.hidden = false;
});

const byId = (id) => document.getElementById(id);
const run = JSON.parse(byId("run").textContent);
const requests = run.requests;
const SECOND = 1e6;
const FULL_SPAN = Math.max(run.end - run.start, 1000);
const MOST_WAITING = Math.max(1, ...run.lanes.map((lane) => Math.max(...lane.waiting)));

// run.lanes[k].inRow[row]: its requests, earliest first; they never overlap.
for (const lane of run.lanes) lane.inRow = Array.from({ length: lane.rows }, () => []);
requests.lane.forEach((lane, r) => run.lanes[lane].inRow[requests.row[r]].push(r));

const evictions = new Map(); // request: its preemptions, as [sample, until, times]
run.evictions.request.forEach((r, e) => {
  if (!evictions.has(r)) evictions.set(r, []);
  evictions.get(r).push([run.evictions.sample[e], run.evictions.until[e], run.evictions.times[e]]);
});

/** Return the first index in 0 .. n at which isReached(index) holds; it must stay true from there. */
function firstIndex(n, isReached) {
  let low = 0, high = n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isReached(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Return the last sample at or before a time; the first one before all. */
function sampleAt(time) {
  return Math.max(0, firstIndex(run.times.length, (k) => run.times[k] > time) - 1);
}

const count = (n) => n.toLocaleString("en-US");
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

/** Write a duration or an instant in seconds with so many decimals. */
function seconds(time, decimals = 3) {
  return (time / SECOND).toLocaleString("en-US", {
    minimumFractionDigits: decimals, maximumFractionDigits: decimals,
  });
}

/** Mix a colour "#rrggbb" with white (share > 0) or black (share < 0). */
function shade(colour, share) {
  const target = share > 0 ? 255 : 0;
  const mixed = [1, 3, 5].map((at) => {
    const own = parseInt(colour.slice(at, at + 2), 16);
    return Math.round(own + (target - own) * Math.abs(share));
  });
  return `rgb(${mixed.join(",")})`;
}

// A tier's colours by phase; less urgent tiers than there are colours share the last.
const PHASES = run.colours.map((colour) => ({
  queued: shade(colour, 0.75), prefill: shade(colour, -0.45), decode: shade(colour, 0.15),
}));
const phasesOf = (tier) => PHASES[Math.min(tier, PHASES.length - 1)];
