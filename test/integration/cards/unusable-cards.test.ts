/** Cards that fail, recover or vanish while a context has them open, over both engines: what fails and for how long, what errors and query().unavailable say. */

import { describe, expect, it, onTestFinished } from 'vitest';
import { connectEmulatedNode } from '../../../src/emulator/index.ts';
import { Context, type Endpoint, MemoryType, type RemoteKey } from '../../../src/index.ts';
import { Errno } from '../../../src/sys/index.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { requires } from '../../fixtures/requires.ts';

const BYTES = 65_536;
const { skipReason } = installedLibucp();

async function expectRoundTrip(endpoint: Endpoint, rkey: RemoteKey, value: number): Promise<void> {
  const bytes = new Uint8Array(BYTES).fill(value);
  await endpoint.put(bytes, rkey);
  const back = new Uint8Array(BYTES);
  await endpoint.get(back, rkey);
  expect(Buffer.compare(back, bytes)).toBe(0);
}

/** The entries of the first card in query().unavailable. */
const firstCard = (context: Context): readonly unknown[] =>
  context.query().unavailable.filter(({ name }) => name === 'gaudi0');

describe.each(['native', 'libucx'] as const)('engine %s', (engine) => {
  const fixture = useContexts(engine);
  const engineRequired = (): void => {
    if (engine === 'libucx') requires(skipReason === undefined, skipReason ?? '');
  };

  it('a rejected submission fails one transfer, and says that later ones work', async () => {
    engineRequired();
    const { node, context, endpoint } = await fixture.open({ node: { cards: 1 } });
    const hbm = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
    const rkey = endpoint.unpackRkey(context.packRkey(hbm));
    for (const byteLength of [BYTES, 8]) {
      await expectRoundTrip(endpoint, rkey, byteLength & 0x7f);
      node.inject(0, { kind: 'ioctl', ioctl: 'CS', errno: Errno.EIO });
      const error = await failureOf(() => endpoint.put(new Uint8Array(byteLength), rkey));
      expect(error).toMatchObject({
        code: 'ERR_IO_ERROR',
        message: expect.stringMatching(/rejected its submission with EIO .*; later transfers are not affected/),
      });
      await expectRoundTrip(endpoint, rkey, 5);
      expect(firstCard(context)).toEqual([]);
    }
    context.memUnmap(hbm);
  });

  it('counts transfers that fail because their memory cannot be registered', async () => {
    engineRequired();
    fixture.allow(/./);
    const { node, context, worker, endpoint } = await fixture.open({ node: { cards: 1 } });
    const hbm = context.memMap({ allocate: 2 ** 21, memoryType: MemoryType.GAUDI });
    const rkey = endpoint.unpackRkey(context.packRkey(hbm));
    node.inject(0, { kind: 'malfunction' });
    await failureOf(() => endpoint.put(new Uint8Array(2 ** 20), rkey));
    await failureOf(() => endpoint.get(new Uint8Array(2 ** 20), rkey));
    expect(worker.stats().counters).toMatchObject({ failures: 2 });
    context.memUnmap(hbm);
  });

  it('a card that has failed and recovered says so, with the remedy, and the remedy helps', async () => {
    engineRequired();
    fixture.allow(/./);
    const { node, context, endpoint } = await fixture.open({ node: { cards: 1 } });
    const hbm = context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
    const rkey = endpoint.unpackRkey(context.packRkey(hbm));
    // Registered while the card works: what fails is the transfer.
    const source = new Uint8Array(BYTES);
    const put = (): Promise<unknown> => endpoint.put(source, rkey);
    await put();
    node.inject(0, { kind: 'malfunction' });
    expect((await failureOf(put)).message).toContain('the card has failed (malfunction)');
    expect(firstCard(context)).toEqual([
      { name: 'gaudi0', reason: expect.stringMatching(/^card 0 .*the card has failed \(malfunction\)/) },
    ]);
    node.inject(0, { kind: 'recover' });
    const { message } = await failureOf(put);
    expect(message).toContain('the card works again, but was reset or failed after this process had opened it');
    expect(message).toContain('close the context and create a new one');
    expect(message).not.toContain('in reset');
    expect(firstCard(context)).toEqual([{ name: 'gaudi0', reason: expect.stringContaining('works again') }]);
    context.memUnmap(hbm);
    await context.close();
    const again = await fixture.openOn(node);
    const memory = again.context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI });
    await expectRoundTrip(again.endpoint, again.endpoint.unpackRkey(again.context.packRkey(memory)), 9);
    expect(firstCard(again.context)).toEqual([]);
    again.context.memUnmap(memory);
  });

  it('an unplugged card is unavailable, with the reason, without an operation on it', async () => {
    engineRequired();
    fixture.allow(/./);
    const { node, context } = await fixture.open({ node: { cards: 2 } });
    expect(firstCard(context)).toEqual([]);
    node.inject(0, { kind: 'unplug' });
    const removed = [{ name: 'gaudi0', reason: expect.stringMatching(/^card 0 .*the card was removed/) }];
    expect(firstCard(context)).toEqual(removed);
    expect(context.snapshot().unavailable.filter(({ name }) => name.startsWith('gaudi'))).toEqual(removed);
  });
});

it.each(['native', 'libucx'] as const)('the cards of a killed node server are unavailable over %s', async (engine) => {
  if (engine === 'libucx') requires(skipReason === undefined, skipReason ?? '');
  const server = await TestNodeServer.start({ cards: 2 });
  const node = connectEmulatedNode(server.socketPath);
  const context = await Context.create({ node, engine, env: {}, configDirectories: [], logSink: () => undefined });
  onTestFinished(async () => {
    await context.close();
    node.close();
    await server.stop();
  });
  await server.kill();
  const gone = expect.stringContaining(`${server.socketPath} has ended`);
  expect(context.query().unavailable.filter(({ name }) => name.startsWith('gaudi'))).toEqual([
    { name: 'gaudi0', reason: gone },
    { name: 'gaudi1', reason: gone },
  ]);
});
