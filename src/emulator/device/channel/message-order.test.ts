/** The order of a message behind data, on a card that is strict and on one that is not. */

import { describe, expect, it } from 'vitest';
import {
  ChannelFixture,
  completedCopy,
  copyPacket,
  FROM_DEVICE,
  fence,
  message,
  sobAt,
} from '../../../../test/contract/driver/channel-fixture.ts';
import { PdmaChannelA } from '../../../uapi/index.ts';
import { createEmulatedNode } from '../../emulated-node.ts';

const BYTES = 65_536;
const AT = 2 ** 20;

describe.each([true, false])('a message behind data (strict: %s)', (strict) => {
  const fixture = new ChannelFixture(() => createEmulatedNode({ asic: 'gaudi3', cards: 1, dmaThreads: 0, strict }));
  const manager = fixture.profile.sync.managers.find(({ name }) => name === 'HD1_0')!;

  it('overtakes it on a strict card, unless a fence holds it back', async () => {
    const sent = fixture.pattern(BYTES);
    const program = fixture.channel().setUp();
    const objects = fixture.map(manager.sobObj);
    const there = copyPacket(BYTES, FROM_DEVICE, fixture.hostVa, fixture.deviceVa);
    const back = copyPacket(BYTES, FROM_DEVICE, fixture.deviceVa, fixture.hostVa + BigInt(AT));
    program.submit(there, back, message(sobAt(1, 0, 5), 1));
    // Engines without threads move bytes at the next call of the driver.
    expect([objects.read(20), fixture.host.u8[AT]]).toEqual([strict ? 1 : 0, 0]);
    program.await(2n);
    expect(fixture.host.u8.slice(AT, AT + BYTES)).toEqual(sent);
    await program.until(PdmaChannelA.MSQ_CI, 2 * 24 + 16);
    expect(objects.read(20)).toBe(1);
    fixture.host.u8.fill(0, AT, AT + BYTES);
    const raise = fixture.profile.cfg.start + 0xc540000n + BigInt(PdmaChannelA.FENCE_INC);
    program.submit(there, back, completedCopy(copyPacket(0, FROM_DEVICE, 0n, 0n), raise, 1), fence(0, 1, 1));
    program.submit(message(sobAt(1, 0, 5), 2));
    expect(objects.read(20)).toBe(1);
    await program.until(PdmaChannelA.MSQ_CI, 4 * 24 + 16 + 40 + 8 + 16);
    expect(objects.read(20)).toBe(2);
    expect(fixture.host.u8.slice(AT, AT + BYTES)).toEqual(sent);
  });
});
