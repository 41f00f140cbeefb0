/** Waits for interrupts of PDMA channels that begin before the transfer, on a node without engine threads. */

import { describe, expect, it } from 'vitest';
import {
  ChannelFixture,
  copyPacket,
  DATA_BYTES,
  FROM_DEVICE,
  TO_DEVICE,
} from '../../../../test/contract/driver/channel-fixture.ts';
import { allocateScratch } from '../../../sys/index.ts';
import { HL_WAIT_CS_ARGS, HL_WAIT_CS_FLAGS, HL_WAIT_CS_STATUS, WAIT_CS_INTERRUPT_SHIFT } from '../../../uapi/index.ts';
import { createEmulatedNode } from '../../index.ts';

const HALF = BigInt(DATA_BYTES) / 2n;

describe.each([false, true])('without engine threads, strict: %s', (strict) => {
  const fixture = new ChannelFixture(() => createEmulatedNode({ asic: 'gaudi3', cards: 1, dmaThreads: 0, strict }));

  it('a program that sleeps is woken by transfers that it submits later', async () => {
    const { client, host, hostVa, deviceVa } = fixture;
    const sent = fixture.pattern(65_536);
    const program = fixture.channel(1).setUp();
    const block = allocateScratch(HL_WAIT_CS_ARGS.size);
    const wait = {
      flags: (HL_WAIT_CS_FLAGS.INTERRUPT | ((fixture.interrupt + 1) << WAIT_CS_INTERRUPT_SHIFT)) >>> 0,
      addr: BigInt(host.address + program.counterOffset),
      target: 2n,
      interrupt_timeout_us: 10_000_000n,
    };
    HL_WAIT_CS_ARGS.in.encode(wait, block.view);
    const waiting = client.file.ioctlAsync(client.file.numbers.WAIT_CS, block);
    program.submit(
      copyPacket(sent.length, TO_DEVICE, hostVa, deviceVa),
      copyPacket(sent.length, FROM_DEVICE, deviceVa, hostVa + HALF),
    );
    expect(await waiting).toBe(0);
    expect(HL_WAIT_CS_ARGS.out.decode(block.view).status).toBe(HL_WAIT_CS_STATUS.COMPLETED);
    block.free();
    expect(host.u8.slice(Number(HALF), Number(HALF) + sent.length)).toEqual(sent);
  });
});
