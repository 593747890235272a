/** The lines of a node's log on a page: new lines are added, the oldest are removed. Pure. */

/** Lines that a page keeps; twice as many as a node. */
export const KEPT = 2000;

const LEVELS = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'];

/** Choices of a level: [the lowest that is shown, label]. */
export const SHOWN = [['debug', 'All levels'], ['notice', 'Notices and worse'], ['warning', 'Warnings and worse'], ['error', 'Errors and worse']];

/**
 * The lines that an answer of `/api/nodes/NODE/log` adds after number `last`: the new ones, before them a remark where
 * some are missing.
 *
 * @param {number} last 0: nothing is known yet
 * @param {{lines: {number: number, level: string, text: string}[], last: number}} answer
 * @returns {{lines: {level: string, text: string, isRemark?: boolean}[], last: number}}
 */
export function added(last, answer) {
  const { lines } = answer;
  const remark = (text) => ({ level: 'emergency', text, isRemark: true });
  if (answer.last < last) return { lines: [remark('The node was started anew.'), ...lines], last: answer.last };
  const missing = last && lines.length ? lines[0].number - last - 1 : 0;
  return { lines: missing > 0 ? [remark(`${missing} lines came too fast to be shown.`), ...lines] : lines, last: answer.last };
}

/** True if a line is to be shown.  @param {string} level the lowest @param {string} text a part of it; case doesn't matter */
export function isShown(line, level, text) {
  if (line.isRemark) return true;
  return LEVELS.indexOf(line.level) >= LEVELS.indexOf(level) && line.text.toLowerCase().includes(text.toLowerCase());
}

/** The tone of a line. */
export function toneOf({ level }) {
  const rank = LEVELS.indexOf(level);
  return rank >= LEVELS.indexOf('error') ? 'bad' : rank >= LEVELS.indexOf('warning') ? 'warn' : 'quiet';
}
