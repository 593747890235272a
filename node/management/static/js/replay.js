/** Replay of dead letters: back to the queues in which they died, all or some, or only told what would go. */

import { path, post } from './api.js';
import { attempt, confirm } from './dialog.js';
import { fill, h } from './dom.js';
import { field, form, input, select } from './form.js';
import { number, plural } from './format.js';

const REASONS = [['', 'Any'], ['rejected', 'rejected'], ['expired', 'expired'], ['maxlen', 'maxlen'], ['delivery_limit', 'delivery_limit']];

/** The form, and below it what the last replay did. */
export function replayForm(view, vhost, queue) {
  const result = h('p.hint', { 'aria-live': 'polite' });
  const dry = h('label.check', null, h('input', { type: 'checkbox', name: 'dry', checked: true }), 'Only say what would go');
  const fields = [
    field('Died because', select('reason', REASONS)),
    field('Died in', input('queue', { placeholder: 'any queue' })),
    field('At most', input('count', { type: 'number', min: 1, placeholder: 'all' })),
    field('Messages a second', input('rate', { type: 'number', min: 1, placeholder: 'no limit' })),
    dry,
  ];
  return h('div', null, form(fields, 'Replay', async (values) => {
    const text = `Dead letters of ${queue} go back to the queues in which they died.`;
    if (!values.dry && !(await confirm({ title: 'Replay dead letters?', text, action: 'Replay', danger: false }))) return;
    await attempt(async () => {
      fill(result, textOf(await post(path('queues', vhost, queue, 'replay'), bodyOf(values)), values.dry));
    });
    await view.refresh();
  }), result);
}

/** The request for the values of the form: fields that are empty are left out. */
export function bodyOf({ reason, queue, count, rate, dry }) {
  return {
    ...(reason ? { reason } : {}),
    ...(queue ? { queue } : {}),
    ...(count ? { count: Number(count) } : {}),
    ...(rate ? { rate: Number(rate) } : {}),
    dry_run: Boolean(dry),
  };
}

/** What a replay did, in a sentence. */
export function textOf({ looked_at: lookedAt, replayed, to, failed, not_chosen: notChosen }, isDry) {
  const went = isDry ? 'would go back' : 'went back';
  const places = Object.entries(to).map(([name, count]) => `${number(count)} to ${name}`).join(', ');
  const lost = Object.entries(failed).map(([name, count]) => `${number(count)} to ${name}`).join(', ');
  return [
    `${plural(replayed, 'message')} of ${number(lookedAt)} ${went}${places ? `: ${places}` : ''}.`,
    notChosen ? `${plural(notChosen, 'message')} were not chosen.` : '',
    lost ? `Not taken: ${lost}.` : '',
  ].filter(Boolean).join(' ');
}
