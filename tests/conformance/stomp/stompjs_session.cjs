// A session of @stomp/stompjs in Node.js: `node stompjs_session.cjs PACKAGES OPTIONS`.
//
// PACKAGES is a folder with node_modules. OPTIONS is JSON: url, version, login, passcode, queue, octets for a body, and for wss the files ca,
// cert and key. It prints one JSON object of what it saw, or of the fault.
const fs = require('node:fs');
const path = require('node:path');
const { createRequire } = require('node:module');

const [packages, text] = process.argv.slice(2);
const load = createRequire(path.join(path.resolve(packages), 'session.cjs'));
const { Client, Versions } = load('@stomp/stompjs');
const { WebSocket } = load('ws');
const options = JSON.parse(text);

const read = (name) => (options[name] ? fs.readFileSync(options[name]) : undefined);
const tls = { ca: read('ca'), cert: read('cert'), key: read('key') };
const version = options.version;
let extensions = null;

const client = new Client({
  webSocketFactory: () => {
    const socket = new WebSocket(options.url, new Versions([version]).protocolVersions(), tls);
    socket.on('upgrade', (response) => { extensions = response.headers['sec-websocket-extensions'] || null; });
    return socket;
  },
  connectHeaders: { ...(options.login && { login: options.login, passcode: options.passcode }), host: '/' },
  stompVersions: new Versions([version]),
  heartbeatIncoming: options.heartbeat || 0,
  heartbeatOutgoing: options.heartbeat || 0,
  reconnectDelay: 0,
});

const wait = () => {
  let done;
  const promise = new Promise((resolve) => { done = resolve; });
  return [promise, done];
};

async function run() {
  const fault = new Promise((_, reject) => {
    client.onStompError = (frame) => reject(new Error(frame.headers.message));
    client.onWebSocketError = (event) => reject(new Error(event.message || 'no WebSocket'));
  });
  const orFault = (promise) => Promise.race([promise, fault]);
  const [connected, onConnect] = wait();
  client.onConnect = onConnect;
  client.activate();
  await orFault(connected);
  const spoken = client.connectedVersion;

  const destination = `/queue/${options.queue}`;
  const messages = [];
  const [received, onLast] = wait();
  const [subscribed, onSubscribed] = wait();
  client.watchForReceipt('subscribed', onSubscribed);
  const subscription = client.subscribe(destination, (message) => {
    const { kind } = message.headers;
    messages.push([kind, kind === 'octets' ? [...message.binaryBody] : message.body]);
    message.ack();
    if (kind === 'last') onLast();
  }, { ack: 'client-individual', receipt: 'subscribed', 'prefetch-count': '10' });
  await orFault(subscribed);

  const [confirmed, onConfirmed] = wait();
  client.watchForReceipt('sent', onConfirmed);
  const dropped = client.begin();
  client.publish({ destination, body: 'never', headers: { kind: 'dropped', transaction: dropped.id } });
  dropped.abort();
  const kept = client.begin();
  client.publish({ destination, body: 'grün: \\', headers: { kind: 'text', transaction: kept.id } });
  kept.commit();
  client.publish({ destination, body: 'ä'.repeat(100000), headers: { kind: 'large', persistent: 'true', receipt: 'sent' } });
  if (options.octets) client.publish({ destination, binaryBody: new Uint8Array(options.octets), headers: { kind: 'octets' } });
  client.publish({ destination, body: 'end', headers: { kind: 'last' } });
  await orFault(received);
  await orFault(confirmed);
  if (options.heartbeat) await orFault(new Promise((resolve) => { setTimeout(resolve, 3.5 * options.heartbeat); }));
  subscription.unsubscribe();
  const [ended, onEnded] = wait();
  client.onWebSocketClose = onEnded; // a server may end without the receipt of DISCONNECT
  client.deactivate();
  await orFault(ended);
  return { version: spoken, extensions, messages: messages.map(([kind, body]) => [kind, body.slice(0, 20), body.length]) };
}

run().then(
  (found) => { console.log(JSON.stringify(found)); process.exit(0); },
  (error) => { console.log(JSON.stringify({ fault: error.message })); process.exit(0); },
);
