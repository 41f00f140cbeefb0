/** A sender whose receiver does not receive: what waits where, and what bounds it. */

import { Context, type Request, Status } from '../../src/index.ts';

const MESSAGES = 1000;
const BYTES = 4000;
const TAG = 1;
const KEPT_MAX = 2 ** 20;

function message(index: number): Buffer {
  const bytes = Buffer.alloc(BYTES, index);
  bytes.writeUInt32LE(index);
  return bytes;
}

async function main(): Promise<void> {
  const receiving = await Context.create({ config: { UNEXP_MAX_BYTES: String(KEPT_MAX) } });
  const sending = await Context.create({ config: { REQUESTS_MAX: '64' } });
  const receiver = receiving.worker();
  const sender = sending.worker();
  const endpoint = sender.endpoint(receiver.address());

  const bytes = new Uint8Array(BYTES);
  await Promise.all([endpoint.tagSend(message(0), { tag: TAG }), receiver.tagRecv(bytes, { tag: TAG })]); // connects

  // The calls of the nbx tier never wait. A request is in use until it is freed.
  const params = { callback: (request: Request) => request.free() };
  let accepted = 0;
  while (accepted < MESSAGES) {
    if (endpoint.tagSendNbx(message(accepted), 0, BYTES, TAG, params) === Status.NO_RESOURCE) break; // nothing was sent
    accepted += 1;
    sender.progress();
    receiver.progress();
  }
  const { messageBytes } = receiving.snapshot().workers[0]!.unexpected!;
  console.log(`${accepted} messages accepted, then NO_RESOURCE: the receiver keeps ${messageBytes} bytes`);

  // Awaited operations wait for a request. One at a time needs no other bound.
  const sent = (async () => {
    for (let index = accepted; index < MESSAGES; index++) await endpoint.tagSend(message(index), { tag: TAG });
  })();
  for (let index = 0; index < MESSAGES; index++) {
    await receiver.tagRecv(bytes, { tag: TAG });
    if (Buffer.compare(bytes, message(index)) !== 0) throw new Error(`message ${index} differs`);
  }
  await sent;
  await sending.close();
  await receiving.close();
  const isBounded = accepted < MESSAGES && messageBytes <= KEPT_MAX;
  console.log(isBounded ? `${MESSAGES} messages arrived, in order` : 'nothing bounded the messages');
}

await main();
