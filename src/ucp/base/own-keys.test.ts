/** The keys of own memory of one worker over fake lanes: one for each memory, and when it is released. */

import { describe, expect, it } from 'vitest';
import { CARD, FakeLanes, LOOPBACK } from '../../../test/fixtures/lanes/fake-lanes.ts';
import { OPEN } from '../../ucs/debug/diagnostics.ts';
import type { MemoryHandle } from '../mem/memory-handle.ts';

/** A worker with memory of a card, and memory that peers may only read. */
function opened() {
  const stack = new FakeLanes([LOOPBACK, CARD]);
  const device = stack.device(64);
  const host = stack.context.memMap({ allocate: 64, protection: ['remote-read'] }) as MemoryHandle;
  return { stack, device, host, keys: stack.worker.ownKeys };
}

describe('own keys', () => {
  it('are one for each memory, and permit everything', () => {
    const { device, host, keys } = opened();
    const [ofDevice, ofHost] = [keys.keyOf(device), keys.keyOf(host)];
    expect([keys.keyOf(device) === ofDevice, keys.keyOf(host) === ofHost, ofDevice === ofHost]).toEqual([
      true,
      true,
      false,
    ]);
    expect(ofHost.access).toBe(ofDevice.access);
    keys.close();
  });

  it('are released when their memory is unmapped, and only they', () => {
    const { stack, device, host, keys } = opened();
    const [before, open] = [stack.keys, OPEN.keptKeys];
    const ofDevice = keys.keyOf(device);
    const ofHost = keys.keyOf(host);
    expect([stack.keys > before, OPEN.keptKeys]).toEqual([true, open + 2]);
    stack.context.memUnmap(device);
    expect([ofDevice.released, ofHost.released, OPEN.keptKeys]).toEqual([true, false, open + 1]);
    keys.close();
  });

  it('are all released when the worker closes', async () => {
    const { stack, device, host, keys } = opened();
    const [before, open] = [stack.keys, OPEN.keptKeys];
    for (const memory of [device, host]) keys.keyOf(memory);
    await stack.worker.close();
    expect([stack.keys, OPEN.keptKeys]).toEqual([before, open]);
  });
});
