/**
 * Charts over time, drawn by uPlot. A `Chart` has a legend with current values; clicking an entry hides its series. Lines
 * that run together are striped, so that none hides another.
 * Colours are the custom properties --series-* of css/theme.css; a change of theme draws anew.
 */

import uPlot from '../vendor/uplot/uPlot.esm.js';
import { drawMarks } from './chart_marks.js';
import { fill, h } from './dom.js';
import { at, axisText, byteRate, bytes, clock, milliseconds, number, rate } from './format.js';
import { pref, setPref } from './prefs.js';
import { aligned, begunAt, dashes, lengths, rangesFor, rates, whyEmpty } from './samples.js';

const KINDS = {
  rate: { data: rates, text: rate, now: (details) => details?.rate },
  byteRate: { data: rates, text: byteRate, now: (details) => details?.rate },
  count: { data: lengths, text: number, now: (details, value) => value },
  bytes: { data: lengths, text: bytes, now: (details, value) => value },
  ms: { data: lengths, text: milliseconds, now: (details, value) => value },
};

/**
 * @typedef {object} Series
 * @property {string} label
 * @property {string} field dotted path of the value; the samples are at `${field}_details`
 * @property {string} colour one of: ready unacked total publish confirm deliver autoack ack redeliver get drop read write …
 *   (css/theme.css)
 * @property {string} [hint] the meaning of the value
 * @property {boolean} [off] hidden until its legend entry is clicked
 */

const drawn = new Set();
const LEFT_MS = 2000;

document.addEventListener('fluffle:theme', () => drawn.forEach((chart) => chart.restart()));
window.addEventListener('hashchange', () => setTimeout(forgetLeft, LEFT_MS));

/** uPlot listens to the window until it is destroyed: charts of pages that were left are. */
function forgetLeft() {
  for (const chart of [...drawn].filter((one) => !one.element.isConnected)) {
    chart.plot?.destroy();
    chart.plot = null;
    drawn.delete(chart);
  }
}

export class Chart {
  /**
   * @param {{id: string, title: string, kind: 'rate'|'count'|'bytes'|'byteRate'|'ms', series: Series[], height?: number}} options
   *   id: name under which hidden series are remembered
   */
  constructor(options) {
    this.options = options;
    this.kind = KINDS[options.kind];
    this.offs = new Set(pref(`chart.${options.id}`, options.series.filter((one) => one.off).map((one) => one.field)));
    this.plotArea = h('.plot', {
      role: 'img', 'aria-label': `${options.title} over time`, style: { height: `${options.height ?? 180}px` },
    });
    this.legend = h('.legend');
    this.element = h('figure.chart', null, h('figcaption', null, options.title), this.plotArea, this.legend);
    this.plot = null;
    this.object = null;
    this.marks = [];
    this.shownSince = Date.now();
    this.watch();
  }

  watch() {
    const resize = new ResizeObserver(() => {
      if (!this.element.isConnected) return;
      if (this.plot) this.plot.setSize(this.size());
      else if (this.object) this.draw();
    });
    resize.observe(this.plotArea);
  }

  /** @param {object|null} object what holds the fields of the series (an overview, a queue …); null draws nothing */
  update(object) {
    this.object = object ?? {};
    this.showLegend();
    this.draw();
  }

  /**
   * Moments to mark in the chart. The samples begin anew at the last one, as those of a queue with its master.
   *
   * @param {{time: number, label: string, isOnlyMark?: boolean}[]} marks time: epoch s; the oldest first. isOnlyMark: the
   *   samples say themselves where they begin
   */
  mark(marks) {
    if (JSON.stringify(marks) === JSON.stringify(this.marks)) return;
    this.marks = marks;
    const words = marks.map(({ time, label }) => `${label} at ${clock(time * 1000)}`);
    this.plotArea.setAttribute('aria-label', [`${this.options.title} over time`, ...words].join(', '));
    if (this.object) this.draw();
  }

  details() {
    return this.options.series.map((one) => at(this.object, `${one.field}_details`));
  }

  data() {
    const data = aligned(this.details().map(this.kind.data));
    const since = this.marks.findLast((one) => !one.isOnlyMark)?.time;
    return since >= data[0][0] ? begunAt(data, since) : data;
  }

  draw() {
    if (!this.plotArea.clientWidth) return; // in a folded section
    const data = this.data();
    const isEmpty = data[0].length < 2;
    this.plotArea.classList.toggle('is-empty', isEmpty);
    if (isEmpty) {
      this.plot?.destroy();
      this.plot = null;
      this.plotArea.dataset.empty = whyEmpty(this.kind.data === rates, this.details(), Date.now() - this.shownSince);
      return;
    }
    if (!this.plot) this.plot = new uPlot(this.plotOptions(), data, this.plotArea);
    this.stripe(data);
    this.plot.setData(data);
    drawn.add(this);
  }

  /** Sets the dashes before lines are drawn: lines that run together take turns. */
  stripe([, ...columns]) {
    const found = dashes(columns, this.options.series.map((one) => !this.offs.has(one.field)));
    found.forEach((dash, place) => {
      this.plot.series[place + 1].dash = dash ? dash.map((length) => length * window.devicePixelRatio) : [];
    });
  }

  restart() {
    this.plot?.destroy();
    this.plot = null;
    this.showLegend();
    this.draw();
  }

  size() {
    return { width: this.plotArea.clientWidth, height: this.options.height ?? 180 };
  }

  plotOptions() {
    const css = getComputedStyle(document.documentElement);
    const colour = (name) => css.getPropertyValue(`--${name}`).trim();
    const font = `11px ${css.getPropertyValue('--font').trim()}`;
    const axis = { stroke: colour('muted'), font, grid: { stroke: colour('grid'), width: 1 }, ticks: { show: false } };
    const top = (chart, min, max) => [0, Math.max(max ?? 0, this.kind === KINDS.bytes ? 1024 : 1) * 1.08];
    return {
      ...this.size(),
      legend: { show: false },
      cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
      padding: [8, 28, 0, 0], // the last time is written around the right end
      scales: { x: { time: true }, y: { range: top } },
      axes: [
        { ...axis, size: 28, space: 70, values: (chart, ticks) => ticks.map((tick) => clock(tick * 1000).slice(0, this.span() > 900 ? 5 : 8)) },
        { ...axis, size: this.options.kind === 'byteRate' ? 76 : 62, space: 34, incrs: this.incrs(), values: (chart, ticks) => ticks.map((tick) => axisText(this.options.kind, tick)) },
      ],
      series: [{}, ...this.options.series.map((one) => ({
        label: one.label,
        stroke: colour(`series-${one.colour}`),
        fill: this.options.series.length < 3 ? `${colour(`series-${one.colour}`)}1c` : undefined, // #rrggbb and a little of it
        width: 1.75,
        show: !this.offs.has(one.field),
        points: { show: false },
        spanGaps: true,
      }))],
      hooks: {
        setCursor: [(chart) => this.showLegend(chart.cursor.idx)],
        draw: [(chart) => drawMarks(chart, this.marks, { colour: colour('muted'), font: css.getPropertyValue('--font').trim() })],
      },
    };
  }

  /** Steps of the axis: of bytes, powers of two; else uPlot's own. */
  incrs() {
    const isBytes = this.options.kind === 'bytes' || this.options.kind === 'byteRate';
    return isBytes ? Array.from({ length: 50 }, (_, power) => 2 ** power) : undefined;
  }

  span() {
    const times = this.plot?.data?.[0] ?? this.data()[0];
    return times.length ? times[times.length - 1] - times[0] : 0;
  }

  /** Current values, or those under the cursor. */
  showLegend(index = null) {
    const pointed = index === null || index === undefined ? null : this.plot?.data;
    const entries = this.options.series.map((one, place) => {
      const details = at(this.object, `${one.field}_details`);
      const value = pointed ? pointed[place + 1]?.[index] : this.kind.now(details, at(this.object, one.field));
      return this.entry(one, place, this.kind.text(value));
    });
    if (!this.legend.childElementCount) fill(this.legend, entries);
    else entries.forEach((entry, place) => this.freshen(this.legend.children[place], entry));
  }

  entry(one, place, value) {
    const isOff = this.offs.has(one.field);
    return h(`button.legend-entry${isOff ? '.is-off' : ''}`,
      { type: 'button', 'aria-pressed': String(!isOff), title: one.hint, onclick: () => this.toggle(one, place) },
      h(`span.swatch.is-${one.colour}`), h('span', null, one.label), h('b', null, value));
  }

  freshen(old, entry) {
    old.className = entry.className;
    old.setAttribute('aria-pressed', entry.getAttribute('aria-pressed'));
    const value = entry.lastChild.textContent;
    if (old.lastChild.textContent !== value) old.lastChild.textContent = value;
  }

  toggle(one, place) {
    if (this.offs.has(one.field)) this.offs.delete(one.field);
    else this.offs.add(one.field);
    setPref(`chart.${this.options.id}`, [...this.offs]);
    if (this.plot) this.stripe(this.plot.data);
    this.plot?.setSeries(place + 1, { show: !this.offs.has(one.field) });
    this.showLegend();
  }
}

/** Which range charts of a kind of object show: a select for a section's head. `onChange` refreshes the page. */
export function rangePicker(id, kept, onChange) {
  const ranges = rangesFor(kept);
  const select = h('select.range', { 'aria-label': 'Range of the charts' }, ranges.map((range) => h('option', { value: range.id }, range.label)));
  select.value = rangeOf(id, kept).id;
  select.addEventListener('change', () => {
    setPref(`range.${id}`, select.value);
    onChange();
  });
  return select;
}

/** The range chosen for a kind of object; ten minutes at first. */
export function rangeOf(id, kept) {
  const ranges = rangesFor(kept);
  return ranges.find((range) => range.id === pref(`range.${id}`, '600|5')) ?? ranges[1];
}

/**
 * Request parameters for a range: `rangeParams('queue', ['lengths', 'msg_rates'])`.
 *
 * @param {string} id as for `rangePicker`
 * @param {string[]} series of lengths, msg_rates, data_rates, node_stats
 * @param {number[]} [kept] seconds kept; an hour by default, as for single objects
 */
export function rangeParams(id, series, kept) {
  const { age, step } = rangeOf(id, kept);
  return Object.fromEntries(series.flatMap((one) => [[`${one}_age`, age], [`${one}_incr`, step]]));
}
