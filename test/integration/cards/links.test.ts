/** Links between cards that go down while a program runs: the estimates, the transport that is used, and the bytes. */

import { describe, expect, it } from 'vitest';
import { type MemoryHandle, MemoryType, type RemoteKey } from '../../../src/index.ts';
import { type Stack, useContexts } from '../../fixtures/contexts.ts';

const fixture = useContexts();
const BYTES = 200_000;

/** HBM of both cards, and a key of the second one that was just unpacked. */
function memories({ context, endpoint }: Stack): { near: MemoryHandle; far: MemoryHandle; newKey: () => RemoteKey } {
  const map = (sysDevice: number): MemoryHandle =>
    context.memMap({ allocate: BYTES, memoryType: MemoryType.GAUDI, sysDevice });
  const [near, far] = [map(0), map(1)];
  return { near, far, newKey: () => endpoint.unpackRkey(context.packRkey(far)) };
}

/** Puts bytes into the first card, copies them into the second, and reads them back. */
async function roundTrip({ context, endpoint }: Stack, near: MemoryHandle, farKey: RemoteKey): Promise<void> {
  const sent = Uint8Array.from({ length: BYTES }, (_, index) => index * 31 + (index >> 8));
  const nearKey = endpoint.unpackRkey(context.packRkey(near));
  await endpoint.put(sent, nearKey);
  await endpoint.put(near, farKey);
  const received = new Uint8Array(BYTES);
  await endpoint.get(received, farKey);
  expect(Buffer.compare(sent, received)).toBe(0);
  nearKey.release();
}

describe('links between cards', () => {
  it('lower the estimate if some are down, for keys that are unpacked afterwards', async () => {
    const stack = await fixture.open();
    const { near, newKey } = memories(stack);
    const explain = (key: RemoteKey) => {
      const told = stack.endpoint.explain('put', near, key);
      const [{ transport, note, estimatedNs }, first] = [told.at(BYTES).winner!, told.at(1).winner!];
      return { transport, note, bytesNs: estimatedNs! - first.estimatedNs! };
    };
    const before = newKey();
    const whole = explain(before);
    expect(whole).toMatchObject({ transport: 'gaudi_ipc/gaudi0', note: '3 of 3 links up' });
    const port = stack.node.links(0)!.find(({ peer }) => peer !== undefined)!.port;
    stack.node.inject(0, { kind: 'link-down', port });
    const after = newKey();
    const degraded = explain(after);
    expect(degraded).toMatchObject({ transport: 'gaudi_ipc/gaudi0', note: '2 of 3 links up' });
    expect(degraded.bytesNs / whole.bytesNs).toBeCloseTo(1.5, 3);
    expect(String(stack.endpoint.explain('put', near, after))).toContain('2 of 3 links up');
    expect(explain(before)).toEqual(whole);
  });

  it('carry the bytes between cards, and are counted', async () => {
    const stack = await fixture.open();
    const { near, newKey } = memories(stack);
    await roundTrip(stack, near, newKey());
    const { linkBytes, cards } = stack.node.transfers()!;
    expect(linkBytes[0]![1]).toBe(BYTES);
    expect(cards[0]!.hostToDevice.bytes).toBeGreaterThanOrEqual(BYTES);
    expect(cards[0]!.deviceToDevice).toEqual({ bytes: BYTES, operations: 1 });
  });

  it('that are all down cause transfers by messages', async () => {
    const stack = await fixture.open();
    const { near, newKey } = memories(stack);
    stack.node.inject(0, { kind: 'link-down', peer: 1 });
    const key = newKey();
    const { winner, losers } = stack.endpoint.explain('put', near, key).at(BYTES);
    expect(winner?.protocol).toBe('put/am');
    expect(losers.map(({ transport, reason }) => `${transport} ${reason}`)).toContain(
      'gaudi_ipc/gaudi0 cannot reach the remote memory: 0 of 3 links up',
    );
    await roundTrip(stack, near, key);
    expect(stack.node.transfers()!.linkBytes[0]![1]).toBe(0);
  });

  it('that are not reported count as up', async () => {
    const stack = await fixture.open({ node: { reportNicPorts: false } });
    const { near, newKey } = memories(stack);
    const { winner } = stack.endpoint.explain('put', near, newKey()).at(BYTES);
    expect(winner).toMatchObject({ transport: 'gaudi_ipc/gaudi0' });
    expect(winner).not.toHaveProperty('note');
  });
});
