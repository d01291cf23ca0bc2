"use strict";
// What lies under the pointer, and the box that says its numbers.

const tip = byId("tip");

/** Return the lane under a y of the canvas, or undefined. */
function laneAt(y) {
  const at = y + scroller.scrollTop;
  return y < AXIS ? undefined : run.lanes.find((lane) => lane.top <= at && at < lane.bottom);
}

/** Return the request under the pointer, the nearest within 3 pixels, or -1. */
function requestAt(x, y) {
  const lane = laneAt(y);
  if (!lane || x < GUTTER || y < stripTop(lane) + 2 * STRIP + GAP) return -1;
  const row = (y + scroller.scrollTop - lane.bars) / rowHeight;
  const reach = Math.max(0, 3 / rowHeight - 0.5);
  let found = -1, least = Infinity;
  for (let near = Math.floor(row - reach); near <= row + reach; near++) {
    const distance = Math.abs(near + 0.5 - row);
    const r = distance < least ? requestInRow(lane, near, x) : -1;
    if (r >= 0) [found, least] = [r, distance];
  }
  return found;
}

function requestInRow(lane, row, x) {
  const here = lane.inRow[row] ?? [];
  const k = firstIndex(here.length, (at) => xOf(requests.end[here[at]]) >= x - 2);
  return k < here.length && xOf(requests.arrival[here[k]]) <= x + 2 ? here[k] : -1;
}

/** Return title and rows of text about a request. */
function aboutRequest(r) {
  const of = (name) => requests[name][r];
  const status = run.statuses[of("status")];
  const since = (name) => (of(name) === null ? null : of(name) - of("arrival"));
  const isFinished = status === "finished", tokens = of("output_tokens");
  const tpot = isFinished && tokens > 1 ? (of("end") - of("first_token")) / (tokens - 1) : null;
  const lasting = (time) => (time === null ? "-" : `${seconds(time)} s`);
  const title = `request ${of("id")}: ${status}, tier ${of("tier")}, instance ${run.lanes[of("lane")].instance}`;
  const rows = [
    ["tokens", `${count(of("prompt_tokens"))} prompt, ${count(tokens)} output (predicted ${count(of("predicted_tokens"))})`],
    ["arrival", lasting(of("arrival"))],
    ["queue time", lasting(since("admitted"))],
    ["TTFT", lasting(since("first_token"))],
    ["TPOT", tpot === null ? "-" : `${(tpot / 1000).toFixed(2)} ms`],
    [isFinished ? "E2E" : "until its end or the run's", lasting(of("end") - of("arrival"))],
    ...aboutEvictions(r),
  ];
  for (const name of ["category", "tenant"]) if (requests[name]?.[r]) rows.push([name, of(name)]);
  return [title, rows];
}

/** Return rows of text about a request's preemptions; their times are known to a sample. */
function aboutEvictions(r) {
  if (!requests.preemptions[r]) return [["preempted", "never"]];
  const step = run.times[1] - run.times[0];
  const rows = [["preempted", `${plural(requests.preemptions[r], "time")}, ${plural(requests.recomputed_tokens[r], "token")} recomputed`]];
  const seen = evictions.get(r) ?? [];
  for (const [sample, until] of seen.slice(0, 5)) {
    const waited = run.times[until] - run.times[sample];
    const after = waited > 0 ? `then waited about ${seconds(waited, 1)} s` : `then waited < ${seconds(step, 2)} s`;
    rows.push(["", `between ${seconds(run.times[sample] - step, 2)} and ${seconds(run.times[sample], 2)} s, ${after}`]);
  }
  if (seen.length > 5) rows.push(["", `and ${seen.length - 5} more`]);
  return rows;
}

/** Return title and rows of text about an instance at a time. */
function aboutInstance(lane, time) {
  const k = sampleAt(time), used = lane.used[k];
  return [
    `instance ${lane.instance} at ${seconds(run.times[k])} s`,
    [
      ["KV in use", `${((100 * used) / lane.kv_blocks).toFixed(1)} % (${count(used)} of ${plural(lane.kv_blocks, "block")})`],
      ["running", plural(lane.running[k], "request")],
      ["waiting", plural(lane.waiting[k], "request")],
      ["preemptions so far", count(lane.preemptions[k])],
    ],
  ];
}

/** Show the box beside a point of the window; texts go in as text, never as HTML. */
function showTip([title, rows], x, y) {
  const heading = document.createElement("b"), table = document.createElement("table");
  heading.textContent = title;
  for (const cells of rows) {
    const row = table.insertRow();
    for (const cell of cells) row.insertCell().textContent = cell;
  }
  tip.replaceChildren(heading, table);
  tip.style.display = "block";
  const right = innerWidth - tip.offsetWidth - 8, low = innerHeight - tip.offsetHeight - 8;
  tip.style.left = `${Math.max(4, x + 16 > right ? x - tip.offsetWidth - 16 : x + 16)}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 14, low))}px`;
}

/** Say what is under the pointer, and outline it. */
function point(event) {
  const box = picture.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  view.pointer = { x, y };
  view.picked = requestAt(x, y);
  const lane = laneAt(y);
  if (view.picked >= 0) showTip(aboutRequest(view.picked), event.clientX, event.clientY);
  else if (lane && x >= GUTTER) showTip(aboutInstance(lane, timeAt(x)), event.clientX, event.clientY);
  else hideTip();
}

function hideTip() {
  tip.style.display = "none";
}
