/** The largest transfer that the thread of a node server executes itself: less than a megabyte. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { halves } from '../../../test/contract/driver/driver-fixture.ts';
import { EmulatedCard } from '../../../test/contract/driver/emulated-card.ts';
import { LIN_DMA_BYTES, linDmaCtl, writeLinDma } from '../../uapi/index.ts';
import { NodeServer } from './node-server.ts';

const MIB = 2 ** 20;

it('a submission of a node server returns before a copy of a megabyte has run', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-inline-'));
  const server = new NodeServer({ socketPath: join(folder, 'node.sock'), node: { cards: 1, dmaThreads: 0 } });
  const { inlineBytesMax } = server.node.config;
  server.close();
  rmSync(folder, { recursive: true });
  // Without threads the engines run in the next ioctl; bytes copied by the submission itself are visible before it.
  const card = new EmulatedCard({ inlineBytesMax });
  const sram = card.node.config.profile.sram.start;
  const copies = (byteLength: number): boolean => {
    card.host.u8.fill(7, 0, byteLength);
    const copy = (source: bigint, destination: bigint): bigint => {
      writeLinDma(card.words(3 * MIB), 0, linDmaCtl('gaudi2'), byteLength, ...halves(source), ...halves(destination));
      return card.submit(3 * MIB, LIN_DMA_BYTES).out.seq;
    };
    expect(card.client.wait(copy(card.hostVa, sram), 10_000_000).out.status).toBe(0);
    card.host.u8.fill(0, 0, byteLength);
    const seq = copy(sram, card.hostVa);
    const isInline = card.host.u8[byteLength - 1] === 7;
    expect(card.client.wait(seq, 10_000_000).out.status).toBe(0);
    expect(card.host.u8[byteLength - 1]).toBe(7);
    return isInline;
  };
  expect([copies(4096), copies(MIB)]).toEqual([true, false]);
  card.close();
});
