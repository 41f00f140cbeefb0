/** UCX_LOG_LEVEL=data: a line for each message at either end; none at the level above. */

import { afterEach, expect, it } from 'vitest';
import { HEADER_BYTES, MessageId } from '../../../src/api/layout/message.ts';
import { createEmulatedNode, type EmulatedNode } from '../../../src/emulator/index.ts';
import { Context, type Worker } from '../../../src/index.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';

expectNoLeaks();

const TAG = 0xfedc_ba98_7654_3210n;

let node: EmulatedNode | undefined;
const contexts: Context[] = [];
afterEach(async () => {
  for (const context of contexts.splice(0)) await context.close();
  node?.close();
});

/** A worker whose trace of messages is appended to `lines`. */
async function worker(level: string, lines: string[]): Promise<Worker> {
  const context = await Context.create({
    node: node!,
    env: {},
    configDirectories: [],
    config: { LOG_LEVEL: level, TLS: 'posix,self' },
    logSink: (_level, _component, message) => {
      if (/^[TR]X: /.test(message)) lines.push(message);
    },
  });
  contexts.push(context);
  return context.worker();
}

/** A tagged message and an active message from one worker to another; the trace of both. */
async function exchange(level: string): Promise<{ sender: string[]; receiver: string[] }> {
  node = createEmulatedNode({ cards: 2, dmaThreads: 0 });
  const [sender, receiver]: [string[], string[]] = [[], []];
  const [one, two] = [await worker(level, sender), await worker(level, receiver)];
  const endpoint = one.endpoint(two.address());
  const received = new Promise<void>((resolve) => two.setAmHandler(5, () => resolve()));
  const stop = new AbortController();
  const served = two.serve(stop.signal);
  for (const bytes of [10, 80_000]) {
    const target = new Uint8Array(bytes);
    await Promise.all([endpoint.tagSend(new Uint8Array(bytes), { tag: TAG }), two.tagRecv(target, { tag: TAG })]);
  }
  await Promise.all([endpoint.amSend(5, new Uint8Array(30)), received]);
  stop.abort();
  await served;
  return { sender, receiver };
}

it('traces each message at the sender and at the receiver', async () => {
  const { sender, receiver } = await exchange('data');
  const length = (id: number, bytes: number): string => `[length ${HEADER_BYTES[id]! + bytes}]`;
  for (const [lines, direction] of [
    [sender, 'TX'],
    [receiver, 'RX'],
  ] as const) {
    const text = lines.filter((line) => line.startsWith(direction)).map((line) => line.replace(/ ep -?\d+$/, ' ep'));
    expect(text.filter((line) => / (TAG|TAG_RTS|AM) /.test(line))).toEqual([
      `${direction}: TAG ${length(MessageId.TAG, 10)} tag 0xfedcba9876543210 ep`,
      expect.stringMatching(`^${direction}: TAG_RTS \\[length \\d+\\] tag 0xfedcba9876543210 ep$`),
      `${direction}: AM ${length(MessageId.AM, 30)} am_id 5 ep`,
    ]);
  }
  expect(receiver).toContainEqual(expect.stringMatching(/^RX: WIREUP \[length \d+\] ep 0$/));
});

it('is silent at the level req', async () => {
  expect(await exchange('req')).toEqual({ sender: [], receiver: [] });
});
