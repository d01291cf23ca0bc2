"use strict";
// The strips of a lane: KV use, preemptions and waiting requests over time, and the words beside them.
// They stay in sight while the bars of a tall lane scroll by.

/** Return where the strips of a lane are drawn now, as a y of the canvas. */
function stripTop(lane) {
  const lowest = lane.bottom - PAD - 2 * STRIP - GAP - scroller.scrollTop;
  return Math.min(Math.max(lane.top - scroller.scrollTop, AXIS), Math.max(lowest, lane.top - scroller.scrollTop));
}

function drawStrips(lane) {
  const y = stripTop(lane), bottom = lane.bottom - scroller.scrollTop;
  pen.fillStyle = "#fff";
  pen.fillRect(0, y, width, 2 * STRIP + GAP);
  pen.fillRect(0, y, GUTTER, bottom - y);
  const used = lane.used.map((blocks) => blocks / lane.kv_blocks);
  area(used, y + 4, STRIP - 6, KV_FILL, KV_LINE);
  drawMarks(lane, y);
  const share = lane.waiting.map((n) => n / MOST_WAITING);
  area(share, y + STRIP + 3, STRIP - 6, FAINT, QUEUE_LINE);
  pen.fillStyle = "#bbb";
  pen.fillRect(0, Math.round(bottom - PAD / 2), width, 1);
  pen.fillStyle = "#999";
  pen.fillRect(GUTTER - 1, y, 1, bottom - PAD / 2 - y);
  drawWords(lane, y);
}

/** Fill the steps of samples, 0 .. 1, above a base line. */
function area(values, y, high, fill, line) {
  const base = y + high;
  const first = sampleAt(view.from), last = Math.min(run.times.length - 1, sampleAt(view.to) + 1);
  const steps = new Path2D(), edge = new Path2D();
  let level = base;
  steps.moveTo(Math.max(GUTTER, xOf(run.times[first])), base);
  for (let k = first; k <= last; k++) {
    const x = Math.min(width, Math.max(GUTTER, xOf(run.times[k]))), next = base - values[k] * high;
    steps.lineTo(x, level);
    steps.lineTo(x, next);
    if (k === first) edge.moveTo(x, next);
    else edge.lineTo(x, level);
    edge.lineTo(x, next);
    level = next;
  }
  steps.lineTo(Math.min(width, Math.max(GUTTER, xOf(run.times[last]))), base);
  pen.fillStyle = fill;
  pen.fill(steps);
  pen.strokeStyle = line;
  pen.lineWidth = 1;
  pen.stroke(edge);
  pen.fillStyle = FAINT;
  pen.fillRect(GUTTER, base, width - GUTTER, 1);
}

/** Mark the samples since whose predecessor something was preempted. */
function drawMarks(lane, y) {
  pen.fillStyle = run.mark;
  for (let k = sampleAt(view.from); k < run.times.length && run.times[k] <= view.to; k++) {
    if (run.times[k] < view.from) continue;
    const before = k ? lane.preemptions[k - 1] : 0;
    if (lane.preemptions[k] > before) pen.fillRect(xOf(run.times[k]) - 0.5, y, 1.5, 7);
  }
}

/** Write what the lane is, left of it, and what its strips show. */
function drawWords(lane, y) {
  const right = GUTTER - 6, small = "10.5px system-ui, sans-serif", grey = "#555";
  write(`instance ${lane.instance}`, 8, y + 14, "left", "bold 13px system-ui, sans-serif");
  write(plural(lane.requests, "request"), 8, y + 28, "left", small, grey);
  write("KV 100 %", right, y + 12, "right", small, grey);
  write("0", right, y + STRIP, "right", small, grey);
  write(`waiting ${count(MOST_WAITING)}`, right, y + STRIP + 12, "right", small, grey);
  write("0", right, y + 2 * STRIP, "right", small, grey);
  const isMixed = run.lanes.some((other) => other.profile !== lane.profile);
  const lines = ["requests, a bar each", ...(isMixed ? lane.profile.split("/") : [])];
  const room = lane.bottom - scroller.scrollTop - PAD;
  lines.forEach((line, k) => {
    const at = y + 2 * STRIP + 17 + 13 * k;
    if (at < room) write(line, 8, at, "left", small, grey);
  });
}

/** Draw a line through the pointer and its time above. */
function drawPointer() {
  if (!view.pointer || view.pointer.x < GUTTER) return;
  pen.fillStyle = "#0006";
  pen.fillRect(Math.round(view.pointer.x), AXIS, 1, height);
}
