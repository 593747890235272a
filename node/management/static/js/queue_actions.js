/** Actions that drop or delete: each asks first, and says which messages are lost. */

import { del, getIfAny, path } from './api.js';
import { attempt, confirm } from './dialog.js';
import { plural } from './format.js';
import { go } from './router.js';

/** How many messages a queue has, for a question; null when it is not known. */
async function messagesIn(where) {
  const queue = await getIfAny(where, { params: { columns: 'messages,messages_ready,consumers' }, quiet: true });
  return queue ?? {};
}

export async function purgeQueue(view, vhost, name) {
  const where = path('queues', vhost, name);
  const { messages_ready: ready } = await messagesIn(where);
  const what = typeof ready === 'number' ? `${plural(ready, 'message')} that nobody has got yet` : 'all messages that nobody has got yet';
  const text = `This drops ${what} from ${name}. Unacknowledged messages stay.`;
  if (!(await confirm({ title: 'Purge this queue?', text, action: 'Purge' }))) return;
  if (await attempt(() => del(`${where}/contents`), 'Purged')) await view.refresh();
}

export async function deleteQueue(view, vhost, name) {
  const where = path('queues', vhost, name);
  const { messages, consumers } = await messagesIn(where);
  const losses = [messages ? plural(messages, 'message') : 'no messages', consumers ? plural(consumers, 'consumer') : 'no consumers'];
  const text = `It has ${losses.join(' and ')}. Its bindings go with it, on all nodes.`;
  const typed = messages || consumers ? name : null;
  if (!(await confirm({ title: `Delete the queue ${name}?`, text, action: 'Delete', typed }))) return;
  if (await attempt(() => del(where), 'Deleted')) go('#/queues');
}
