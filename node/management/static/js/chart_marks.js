/** Moments that a chart marks: a dashed line from top to bottom with a word at its head. */

const APART = 4; // between a line and its word, and between two words, px

/**
 * Draws onto a chart's canvas; a hook of uPlot.
 *
 * @param {object} plot the uPlot
 * @param {{time: number, label: string}[]} marks time: epoch s; the oldest first
 * @param {{colour: string, font: string}} style font: a family
 */
export function drawMarks(plot, marks, { colour, font }) {
  const { ctx, bbox } = plot;
  const ratio = window.devicePixelRatio;
  let free = bbox.left; // no word to the left of this
  ctx.save();
  ctx.font = `${Math.round(11 * ratio)}px ${font}`;
  ctx.textAlign = 'left';
  ctx.textBaseline = 'top';
  ctx.strokeStyle = colour;
  ctx.fillStyle = colour;
  ctx.lineWidth = ratio;
  ctx.setLineDash([4 * ratio, 3 * ratio]);
  for (const { time, label } of marks.filter((mark) => isShown(plot, mark))) {
    const x = Math.round(plot.valToPos(time, 'x', true)) + 0.5;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const width = ctx.measureText(label).width;
    const isAtEnd = x + APART * ratio + width > bbox.left + bbox.width;
    const start = isAtEnd ? x - APART * ratio - width : x + APART * ratio;
    if (start < free) continue;
    ctx.fillText(label, start, bbox.top);
    free = start + width + APART * ratio;
  }
  ctx.restore();
}

function isShown({ scales }, { time }) {
  return time >= scales.x.min && time <= scales.x.max;
}
