// How is a series over time or over batch sizes drawn? With uPlot, in the colours of the page, and marks for changes.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { h, island } from "../lib/dom.js";
import { number } from "../lib/format.js";

const HEIGHT = 190;
const dark = window.matchMedia("(prefers-color-scheme: dark)");

/**
 * A chart. Its legend is a table, and says the values below the cursor.
 * @param {{key: string, label: string, data: (number|null)[][],
 *   series: {name: string, colour?: string, isStep?: boolean, isPoints?: boolean}[],
 *   unit?: string, range?: [number|null, number|null], isTime?: boolean, marks?: {at: number, text: string}[],
 *   xLabel?: string, places?: number[], isStacked?: boolean, isLog?: boolean, syncKey?: string}} props `data` has the
 *   places first, then one list for each series. Stacked series stand on one another, the first one below. A logarithmic
 *   axis is that of the values. `places` are the marks of the axis below. Charts with one `syncKey` show their cursors at
 *   the same place. A mark with `isNow` is a line without gaps.
 */
export function chart(props) {
  const element = h("div", { class: "chart", "data-island": "", role: "group", "aria-label": props.label });
  return island(element, `chart:${props.key}`, create, props);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function create(element, first) {
  let props = first;
  let plot = draw(element, props);
  const again = () => {
    plot.destroy();
    plot = draw(element, props);
  };
  const resize = new ResizeObserver(() => {
    const width = Math.floor(element.clientWidth);
    if (width && width !== plot.width) plot.setSize({ width, height: HEIGHT });
  });
  resize.observe(element);
  dark.addEventListener("change", again);
  return {
    update(next) {
      const isSame = next.series.map((s) => s.name).join() === props.series.map((s) => s.name).join();
      props = next;
      if (!isSame) return again();
      const areMarksSame = JSON.stringify(next.marks ?? []) === JSON.stringify(plot.marks);
      plot.marks = next.marks ?? [];
      // Data that did not change need no drawing.
      if (JSON.stringify(next.data) === plot.drawn) return areMarksSame ? undefined : plot.redraw(false);
      plot.drawn = JSON.stringify(next.data);
      plot.raw = arranged(next).raw;
      plot.setData(arranged(next).data);
      return newest(plot);
    },
    destroy() {
      resize.disconnect();
      dark.removeEventListener("change", again);
      plot.destroy();
    },
  };
}

function draw(element, props) {
  const { data, series, raw } = arranged(props);
  const plot = new uPlot(options(element, { ...props, series }), data, element);
  plot.raw = raw;
  newest(plot);
  plot.marks = props.marks ?? [];
  plot.drawn = JSON.stringify(props.data);
  return plot;
}

/**
 * Data and series in the order of drawing, and the values that the legend says. Of stacked series the tallest sum is drawn
 * first, so that each colour below it covers a part.
 */
function arranged({ data, series, isStacked }) {
  if (!isStacked) return { data, series, raw: data };
  const [places, ...values] = data;
  const below = places.map(() => 0);
  const sums = values.map((list) => list.map((value, at) => (below[at] += value ?? 0)));
  const filled = series.map((of) => ({ ...of, isFilled: true }));
  return { data: [places, ...sums.reverse()], series: filled.reverse(), raw: [places, ...values.reverse()] };
}

/** Without a cursor the legend says the newest values. */
function newest(plot) {
  if ((plot.cursor.left ?? -1) < 0) plot.setLegend({ idx: plot.data[0].length - 1 });
}

function options(element, props) {
  const axis = {
    stroke: colour("--soft"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line") },
  };
  const text = (value) =>
    value === null || value === undefined ? "–" : `${Number(value.toPrecision(4))}${props.unit ?? ""}`;
  const isTime = props.isTime ?? true;
  const places = { label: isTime ? "time" : props.xLabel, value: isTime ? "{HH}:{mm}:{ss}" : (_, x) => number(x) };
  return {
    width: Math.max(200, Math.floor(element.clientWidth)),
    height: HEIGHT,
    legend: { live: true },
    cursor: { y: false, sync: props.syncKey ? { key: props.syncKey } : undefined },
    scales: { x: { time: isTime }, y: props.isLog ? { distr: 3 } : { range: rangeOf(props.range) } },
    axes: [
      { ...axis, values: isTime ? times : undefined, splits: props.places ? () => props.places : undefined },
      { ...axis, size: 52, values: (_, all) => all.map((v) => (v === null ? null : `${v}${props.unit ?? ""}`)) },
    ],
    series: [places, ...props.series.map((series, at) => lineOf(series, at, text))],
    hooks: { ready: [newest], draw: [drawMarks] },
  };
}

function lineOf(series, at, text) {
  const stroke = colour(series.colour ?? `--series-${(at % 6) + 1}`);
  return {
    label: series.name,
    stroke,
    width: series.isFilled ? 1 : 2,
    fill: series.isFilled ? stroke : undefined,
    dash: series.isStep ? [6, 4] : undefined,
    paths: series.isStep ? uPlot.paths.stepped({ align: 1 }) : undefined,
    points: { show: series.isPoints ?? false, size: 6, fill: stroke },
    spanGaps: series.isPoints ?? false,
    value: (plot, value, of, place) => text(place === null ? value : (plot.raw?.[of]?.[place] ?? value)),
  };
}

/** Numbers stay where they are; null leaves that end to the data. */
function rangeOf(range) {
  const [low, high] = range ?? [0, null];
  return (_, min, max) => {
    const from = low ?? min ?? 0;
    const to = high ?? (max ?? 1) * 1.1;
    return [from, to > from ? to : from + 1];
  };
}

function times(_, seconds, __, ___, step) {
  const options =
    step >= 60 ? { hour: "2-digit", minute: "2-digit" } : { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const format = new Intl.DateTimeFormat("en-GB", options);
  return seconds.map((second) => format.format(new Date(second * 1000)));
}

/** Vertical lines where something changed. */
function drawMarks(plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  for (const mark of plot.marks ?? []) {
    const x = plot.valToPos(mark.at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.setLineDash(mark.isNow ? [] : [2 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.strokeStyle = colour(mark.isNow ? "--ink" : "--series-4");
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
