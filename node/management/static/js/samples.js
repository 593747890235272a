/** Time series as the API gives them, made ready for charts. Pure. Samples come newest first, cumulative for rates. */

/** The ranges that charts offer: [label, age s, increment s], those whose data the server keeps. */
const RANGES = [
  ['last minute', 60, 5],
  ['last ten minutes', 600, 5],
  ['last hour', 3600, 60],
  ['last eight hours', 28800, 600],
  ['last day', 86400, 1800],
];

/** @param {number[]} kept seconds kept, of overview.sample_retention_policies */
export function rangesFor(kept) {
  const most = Math.max(600, ...(kept ?? [3600]));
  return RANGES.filter(([, age]) => age <= most).map(([label, age, step]) => ({ label, age, step, id: `${age}|${step}` }));
}

/**
 * `details.samples` as values over time, oldest first: [[seconds], [values]]. Where the time before the oldest sample is not known,
 * a null stands at the beginning of the range: a gap.
 */
export function lengths(details) {
  const samples = [...(details?.samples ?? [])].reverse();
  if (details?.known_since) samples.unshift({ timestamp: details.asked_since, sample: null });
  return [samples.map((sample) => sample.timestamp / 1000), samples.map((sample) => sample.sample)];
}

/** Since when the lengths of an object are known, for `Chart.mark`, if it is later than the begin of the range. */
export function knownSince(details) {
  return details?.known_since ? [{ time: details.known_since / 1000, label: 'nodes came or went', isOnlyMark: true }] : [];
}

/** `details.samples` of a counter as rates per second between neighbours, oldest first; a counter that fell began anew. */
export function rates(details) {
  const [times, values] = lengths(details);
  const result = [];
  for (let index = 1; index < times.length; index += 1) {
    const seconds = times[index] - times[index - 1];
    result.push(seconds > 0 ? Math.max(0, values[index] - values[index - 1]) / seconds : 0);
  }
  return [times.slice(1), result];
}

/** Several series over one time axis; where one has no sample, null. → [times, values1, values2 …] */
export function aligned(series) {
  const times = [...new Set(series.flatMap(([own]) => own))].sort((one, other) => one - other);
  const place = new Map(times.map((time, index) => [time, index]));
  const columns = series.map(([own, values]) => {
    const column = new Array(times.length).fill(null);
    own.forEach((time, index) => {
      column[place.get(time)] = values[index];
    });
    return column;
  });
  return [times, ...columns];
}

/** A chart without lines says why after so long: a sample is taken each 5 s by default, two make a line. */
const PATIENCE_MS = 12_000;

/**
 * The reason why a chart has nothing to draw. A counter that was never counted has no details at all.
 *
 * @param {boolean} isOfRates rates of counters, not lengths
 * @param {object[]} details those of its series, undefined for a series without
 * @param {number} waited since the chart was shown first, ms
 */
export function whyEmpty(isOfRates, details, waited) {
  const isUntold = details.every((one) => one === undefined || one === null);
  if (isOfRates && (isUntold || waited >= PATIENCE_MS)) return 'No traffic yet';
  return waited >= PATIENCE_MS ? 'No data' : 'Collecting data …';
}

/**
 * The lines of `aligned` without what their queue's new master made up: it tells 0 for all the time before it had the queue.
 * A line that is 0 all the way up to then begins with its first value, but for two steps: clocks and ticks differ.
 *
 * @param {number} since epoch s
 */
export function begunAt([times, ...columns], since) {
  const step = times.length > 1 ? times[1] - times[0] : 0;
  return [times, ...columns.map((column) => {
    const begun = column.findIndex((value, index) => value || times[index] > since + 2 * step);
    const first = begun < 0 ? times.length : begun;
    const isOlder = times[first] < since - 2 * step; // it has samples from before: the master was on this node earlier
    return isOlder ? column : column.map((value, index) => (index < first ? null : value));
  })];
}

const CLOSE = 0.012; // of the highest value: two lines touch
const PERIOD = 24; // of a dashed line, px

/**
 * Dashes for lines that hide each other: those that run together take turns, so that all of their colours are seen.
 *
 * @param {(number|null)[][]} columns of the lines
 * @param {boolean[]} shown which of them are drawn
 * @returns {(number[]|null)[]} for each: [drawn px, left out px], or null for a solid line
 */
export function dashes(columns, shown) {
  const highest = Math.max(0, ...columns.flatMap((column, place) => (shown[place] ? column : [])).filter(Number.isFinite));
  const leaders = columns.map((column, place) => (shown[place] && column.some((value) => value > 0)
    ? columns.findIndex((other, rank) => rank <= place && shown[rank] && isClose(other, column, CLOSE * highest)) : -1));
  return leaders.map((leader, place) => {
    const group = leaders.flatMap((other, rank) => (leader >= 0 && other === leader ? [rank] : []));
    const share = (PERIOD * (group.length - group.indexOf(place))) / group.length;
    return leader < 0 || share === PERIOD ? null : [share, PERIOD - share];
  });
}

function isClose(one, other, distance) {
  const both = one.flatMap((value, index) => (value !== null && other[index] !== null ? [Math.abs(value - other[index])] : []));
  return both.length > 0 && 2 * both.filter((apart) => apart <= distance).length > both.length;
}
