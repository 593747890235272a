/** The form that publishes a message. */

import { path, post } from './api.js';
import { attempt, toast } from './dialog.js';
import { h } from './dom.js';
import { argumentsEditor, field, form, input, select } from './form.js';

const PROPERTIES = [
  { key: 'content_type', value: 'application/json' },
  { key: 'content_encoding' },
  { key: 'priority', type: 'number' },
  { key: 'correlation_id' },
  { key: 'reply_to' },
  { key: 'expiration', hint: 'Milliseconds, as text' },
  { key: 'message_id' },
  { key: 'timestamp', type: 'number', hint: 'Seconds since 1970' },
  { key: 'type' },
  { key: 'user_id' },
  { key: 'app_id' },
].map((chip) => ({ label: chip.key, ...chip }));

/**
 * @param {object} view
 * @param {string} vhost
 * @param {string} exchange '' for the default exchange
 * @param {string|null} queue the queue to publish to, whose name is the key then; null asks for a key
 */
export function publishForm(view, vhost, exchange, queue = null) {
  const headers = argumentsEditor({ label: 'Headers' });
  const properties = argumentsEditor({ label: 'Properties', chips: PROPERTIES });
  const fields = [
    queue === null && field('Routing key', input('routing_key', { maxlength: 255 })),
    field('Delivery mode', select('delivery_mode', [['2', '2 – persistent'], ['1', '1 – transient']])),
    field('Payload encoding', select('payload_encoding', [['string', 'String'], ['base64', 'Base64']])),
    h('label.field.is-wide', null, h('span', null, 'Payload'), h('textarea.code', { name: 'payload', rows: 6, spellcheck: 'false' })),
    headers.element,
    properties.element,
  ];
  return form(fields, 'Publish', async (values) => {
    let routed = false;
    const worked = await attempt(async () => {
      const message = {
        routing_key: queue ?? values.routing_key,
        payload: values.payload,
        payload_encoding: values.payload_encoding,
        properties: { ...properties.read(), delivery_mode: Number(values.delivery_mode), headers: headers.read() },
      };
      ({ routed } = await post(path('exchanges', vhost, exchange, 'publish'), message));
    });
    if (!worked) return;
    if (routed) toast('Published');
    else toast('Published, but the message reached no queue', 'warn');
    await view.refresh();
  });
}
