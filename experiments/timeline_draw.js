"use strict";
// The picture: lanes below each other, each with strips of KV use and waiting requests, then bars.
// A bar is as long as its request was there; all that is drawn is a function of `view` and the run.

const AXIS = 26, GUTTER = 150, STRIP = 34, GAP = 4, PAD = 12; // pixels
const LEAST_BARS = 40, TALLEST_ROW = 16; // pixels: the bars of a lane, a row
const LEAST_SPAN = 1000; // microseconds across the picture
const INK = "#222", FAINT = "#ddd", KV_LINE = "#555", KV_FILL = "#d4d4d4", QUEUE_LINE = "#222";

const view = { from: run.start, to: run.start + FULL_SPAN, picked: -1, pointer: null };
const picture = byId("picture"), scroller = byId("view");
const pen = picture.getContext("2d");
let width = 0, height = 0, rowHeight = 1;

const span = () => view.to - view.from;
const xOf = (time) => GUTTER + ((time - view.from) / span()) * (width - GUTTER);
const timeAt = (x) => view.from + ((x - GUTTER) / (width - GUTTER)) * span();

/** Place the lanes for the present zoom: lane.top, lane.bars and lane.bottom within the tall page. */
function placeLanes() {
  const fixed = run.lanes.length * (2 * STRIP + GAP + PAD);
  const room = Math.max(run.lanes.length * LEAST_BARS, height - AXIS - fixed);
  const n = run.lanes.reduce((sum, lane) => sum + lane.rows, 0);
  const fit = Math.min(TALLEST_ROW, room / Math.max(1, n));
  const grown = byId("grow").checked ? (fit * FULL_SPAN) / span() : fit;
  rowHeight = Math.min(TALLEST_ROW, grown);
  let y = AXIS;
  for (const lane of run.lanes) {
    lane.top = y;
    lane.bars = y + 2 * STRIP + GAP;
    lane.bottom = lane.bars + Math.max(LEAST_BARS, lane.rows * rowHeight) + PAD;
    y = lane.bottom;
  }
  byId("tall").style.height = `${Math.max(0, y - height)}px`;
}

/** Fit the canvas to the window, in device pixels, and draw. */
function resize() {
  width = scroller.clientWidth;
  height = scroller.clientHeight;
  const ratio = devicePixelRatio || 1;
  picture.width = Math.round(width * ratio);
  picture.height = Math.round(height * ratio);
  picture.style.width = `${width}px`;
  picture.style.height = `${height}px`;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw();
}

/** Draw everything that is in sight. */
function draw() {
  placeLanes();
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, width, height);
  const ticks = ticksOf(view.from, view.to, (width - GUTTER) / 90);
  drawGrid(ticks);
  let drawn = 0;
  for (const lane of run.lanes) {
    const top = lane.top - scroller.scrollTop, bottom = lane.bottom - scroller.scrollTop;
    if (bottom <= AXIS || top >= height) continue;
    drawn += drawBars(lane);
    drawStrips(lane);
  }
  drawPointer();
  drawAxis(ticks);
  picture.dataset.drawn = drawn;
  picture.dataset.from = view.from / SECOND;
  picture.dataset.to = view.to / SECOND;
}

/** Return round instants, at most about n of them. */
function ticksOf(from, to, n) {
  const least = (to - from) / Math.max(1, n);
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= least);
  const ticks = [];
  for (let k = Math.ceil(from / step); k * step <= to; k++) ticks.push(k * step);
  ticks.decimals = Math.max(0, -Math.floor(Math.log10(step / SECOND) + 1e-9));
  return ticks;
}

function drawGrid(ticks) {
  pen.fillStyle = "#f0f0f0";
  for (const tick of ticks) pen.fillRect(Math.round(xOf(tick)), AXIS, 1, height);
}

function drawAxis(ticks) {
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, width, AXIS);
  pen.fillStyle = "#999";
  pen.fillRect(0, AXIS - 1, width, 1);
  write("time [s]", 8, 17, "left", "12px system-ui, sans-serif");
  for (const tick of ticks) {
    const x = Math.round(xOf(tick));
    pen.fillStyle = "#999";
    pen.fillRect(x, AXIS - 6, 1, 6);
    if (x < width - 24) write(seconds(tick, ticks.decimals), x, 16, "center");
  }
}

function write(text, x, y, align = "left", font = "11.5px system-ui, sans-serif", colour = INK) {
  pen.fillStyle = colour;
  pen.font = font;
  pen.textAlign = align;
  pen.fillText(text, x, y);
}

/** Return a y on a whole pixel, so that bars are sharp; rows thinner than that must blend. */
const onPixel = (y) => (rowHeight >= 1 ? Math.round(y) : y);

/** Draw the bars of a lane that are in sight; return how many. */
function drawBars(lane) {
  const y0 = lane.bars - scroller.scrollTop;
  const first = Math.max(0, Math.floor((AXIS - y0) / rowHeight));
  const last = Math.min(lane.rows - 1, Math.floor((height - y0) / rowHeight));
  let drawn = 0;
  for (let row = first; row <= last; row++) {
    const here = lane.inRow[row], top = onPixel(y0 + row * rowHeight);
    const high = Math.max(onPixel(y0 + (row + 1) * rowHeight) - top - (rowHeight >= 4 ? 1 : 0), 0.2);
    let k = firstIndex(here.length, (at) => requests.end[here[at]] >= view.from);
    for (; k < here.length && requests.arrival[here[k]] <= view.to; k++, drawn++) {
      drawBar(here[k], top, high);
    }
  }
  return drawn;
}

/** Draw one request: queued, prefill, decode, and where it was preempted. */
function drawBar(r, y, high) {
  const colours = phasesOf(requests.tier[r]);
  const arrival = requests.arrival[r], end = requests.end[r];
  const admitted = requests.admitted[r] ?? end, token = requests.first_token[r] ?? end;
  const x0 = xOf(arrival), x3 = Math.max(xOf(end), x0 + 0.7);
  const x1 = x3 - x0 < 2 ? x0 : xOf(admitted), x2 = x3 - x0 < 2 ? x0 : xOf(token);
  const seam = x3 - x0 > 6 ? 1 : 0; // parts a bar from the next in its row
  part(colours.queued, x0, x1, y, high);
  part(colours.prefill, x1, x2, y, high);
  part(colours.decode, x2, x3 - seam, y, high);
  if (requests.preemptions[r]) drawEvictions(r, y, high, colours);
  if (r === view.picked) outline(x0, x3, y, high);
}

function part(colour, x0, x1, y, high) {
  const left = Math.max(x0, GUTTER), right = Math.min(x1, width);
  if (right <= left) return;
  pen.fillStyle = colour;
  pen.fillRect(left, y, right - left, high);
}

/** Draw the waits after preemptions, light and barred, each behind a mark. */
function drawEvictions(r, y, high, colours) {
  for (const [sample, until] of evictions.get(r) ?? []) {
    const x0 = xOf(run.times[sample]), x1 = xOf(Math.min(run.times[until], requests.end[r]));
    if (x1 < GUTTER || x0 > width) continue;
    part(colours.queued, x0, x1, y, high);
    if (high >= 3) part(run.mark, x0, x1, y + high / 2 - 0.5, 1);
    part(run.mark, x0 - 1, x0 + 2, y, Math.max(high, 1));
  }
}

function outline(x0, x3, y, high) {
  pen.strokeStyle = "#000";
  pen.lineWidth = 2;
  const left = Math.max(x0, GUTTER) - 1, right = Math.min(x3, width) + 1;
  pen.strokeRect(left, y - 1, right - left, Math.max(high, 2) + 2);
}
