"use strict";
// Zoom, move, find; what the keys and buttons do; and the words above the picture.

let isDue = false;
function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
  });
}

/** Show from .. to (microseconds), kept inside the run and no shorter than LEAST_SPAN. */
function show(from, to) {
  const wide = Math.min(FULL_SPAN, Math.max(LEAST_SPAN, to - from));
  const least = run.start, most = run.start + FULL_SPAN - wide;
  view.from = Math.min(most, Math.max(least, from));
  view.to = view.from + wide;
  clearTimeout(show.later);
  show.later = setTimeout(() => history.replaceState(null, "", `#from=${view.from / SECOND}&to=${view.to / SECOND}`), 300);
}

/** Zoom by a factor and keep what is at (x, y) of the canvas in its place. */
function zoom(factor, x = (width + GUTTER) / 2, y = height / 2) {
  const time = timeAt(Math.max(x, GUTTER)), lane = laneAt(y);
  const row = lane ? (y + scroller.scrollTop - lane.bars) / rowHeight : 0;
  show(time - (time - view.from) / factor, time + (view.to - time) / factor);
  placeLanes();
  if (lane) scroller.scrollTop = row < 0 ? lane.top - y + row * rowHeight : lane.bars + row * rowHeight - y;
  redraw();
}

/** Move by a share of what is in sight. */
function move(share) {
  show(view.from + share * span(), view.to + share * span());
  redraw();
}

function showAll() {
  show(run.start, run.start + FULL_SPAN);
  redraw();
}

/** Zoom to a request by its number and say its numbers. */
function find() {
  const wanted = byId("wanted").value, r = requests.id.indexOf(Number(wanted));
  if (wanted === "" || r < 0) {
    byId("answer").textContent = wanted === "" ? "" : `request ${wanted} is not among those shown`;
    return;
  }
  const long = Math.max(requests.end[r] - requests.arrival[r], 1000);
  show(requests.arrival[r] - long / 3, requests.end[r] + long / 3);
  placeLanes();
  const y = run.lanes[requests.lane[r]].bars + requests.row[r] * rowHeight;
  scroller.scrollTop = y - height / 2;
  view.picked = r;
  draw();
  const box = picture.getBoundingClientRect();
  showTip(aboutRequest(r), box.left + xOf(requests.arrival[r]), box.top + y - scroller.scrollTop + rowHeight);
  byId("answer").textContent = `request ${wanted} is outlined`;
}

picture.addEventListener("wheel", (event) => {
  event.preventDefault();
  const lines = event.deltaMode ? 30 : 1;
  zoom(Math.exp(-Math.max(-300, Math.min(300, event.deltaY * lines)) / 400), event.offsetX, event.offsetY);
}, { passive: false });

let held = null; // where a drag stands
picture.addEventListener("pointerdown", (event) => {
  held = { x: event.clientX, y: event.clientY };
  picture.setPointerCapture(event.pointerId);
  picture.classList.add("moving");
});
picture.addEventListener("pointermove", (event) => {
  if (held) {
    hideTip();
    scroller.scrollTop -= event.clientY - held.y;
    move(-(event.clientX - held.x) / (width - GUTTER));
    held = { x: event.clientX, y: event.clientY };
  } else point(event);
  redraw();
});
for (const end of ["pointerup", "pointercancel"]) {
  picture.addEventListener(end, () => {
    held = null;
    picture.classList.remove("moving");
  });
}
picture.addEventListener("pointerleave", () => {
  view.pointer = null;
  view.picked = -1;
  hideTip();
  redraw();
});

const KEYS = {
  "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), "_": () => zoom(1 / 1.5),
  "0": showAll, Home: showAll,
  ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15),
  ArrowUp: () => scroller.scrollBy(0, -60), ArrowDown: () => scroller.scrollBy(0, 60),
  PageUp: () => scroller.scrollBy(0, -height), PageDown: () => scroller.scrollBy(0, height),
  Escape: hideTip,
};
picture.addEventListener("keydown", (event) => {
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
});
byId("in").addEventListener("click", () => zoom(1.5));
byId("out").addEventListener("click", () => zoom(1 / 1.5));
byId("earlier").addEventListener("click", () => move(-0.4));
byId("later").addEventListener("click", () => move(0.4));
byId("all").addEventListener("click", showAll);
byId("grow").addEventListener("change", redraw);
byId("find").addEventListener("click", find);
byId("wanted").addEventListener("keydown", (event) => event.key === "Enter" && find());
scroller.addEventListener("scroll", redraw);
new ResizeObserver(resize).observe(scroller);
