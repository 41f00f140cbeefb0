import { afterEach, describe, expect, it } from 'vitest';
import { halves } from '../../test/contract/driver/driver-fixture.ts';
import { EmulatedCard } from '../../test/contract/driver/emulated-card.ts';
import { useErrnoRecord } from '../../test/fixtures/driver/errno-record.ts';
import { Errno } from '../sys/index.ts';
import { HL_DEVICE_STATUS, HL_WAIT_CS_FLAGS, linDmaCtl, WAIT_CS_INTERRUPT_SHIFT, writeLinDma } from '../uapi/index.ts';
import { createLog, LogLevel } from '../ucs/debug/log.ts';

useErrnoRecord();

const MIB = 2 ** 20;

let card: EmulatedCard;
const lines: string[] = [];
afterEach(() => {
  card.close();
  lines.length = 0;
});

function open(dmaThreads: number): void {
  card = new EmulatedCard({
    dmaThreads,
    log: createLog('test', LogLevel.ERROR, (_level, _component, message) => lines.push(message)),
  });
}

describe('when the engines die', () => {
  for (const dmaThreads of [0, 1, 2]) {
    it(`a blocking wait ends with EIO and the card is out of order (${dmaThreads} threads)`, () => {
      open(dmaThreads);
      const seq = card.block(0);
      card.node.inject(0, { kind: 'engine-failure' });
      expect(card.client.wait(seq, 60_000_000).result).toBe(dmaThreads === 0 ? -Errno.EBUSY : -Errno.EIO);
      expect(card.status).toBe(HL_DEVICE_STATUS.MALFUNCTION);
      expect(card.client.allocate(1).result).toBe(-Errno.EBUSY);
      expect(() => card.node.inject(0, { kind: 'recover' })).toThrow(/the DMA engines of this node have failed/);
      expect(card.status).toBe(HL_DEVICE_STATUS.MALFUNCTION);
      expect(lines.length).toBeGreaterThan(0);
    });

    it(`a non-blocking wait ends with EIO (${dmaThreads} threads)`, async () => {
      open(dmaThreads);
      const seq = card.block(0);
      const wait = card.waitAsync(seq, 60_000_000n);
      card.node.inject(0, { kind: 'engine-failure' });
      if (dmaThreads === 0) card.client.wait(seq);
      expect(await wait).toEqual({ result: -Errno.EIO, out: 3 });
      expect(card.status).toBe(HL_DEVICE_STATUS.MALFUNCTION);
    });
  }

  /** The arguments of a wait for an interrupt, on a card that does not answer. */
  function interrupt(more = 0): { flags: number; target: bigint; interrupt_timeout_us: bigint } {
    card.block(0);
    card.node.inject(0, { kind: 'engine-failure' });
    const flags = (HL_WAIT_CS_FLAGS.INTERRUPT | more | (48 << WAIT_CS_INTERRUPT_SHIFT)) >>> 0;
    return { flags, target: 1n, interrupt_timeout_us: 60_000_000n };
  }

  it('a wait for an interrupt with a counter in a command buffer ends with EIO', () => {
    open(1);
    const cq_counters_handle = card.client.createCommandBuffer(4096).out;
    const values = { ...interrupt(HL_WAIT_CS_FLAGS.INTERRUPT_KERNEL_CQ), cq_counters_handle };
    expect(card.client.waitCs(values).result).toBe(-Errno.EIO);
  });

  it('a wait for an interrupt with a counter in memory ends with the status of an aborted one', () => {
    open(1);
    const values = { ...interrupt(), addr: BigInt(card.host.address + MIB) };
    expect(card.client.waitCs(values)).toMatchObject({ result: 0, out: { status: 3 } });
  });

  it('transfers that had started do not prevent closing', () => {
    open(1);
    writeLinDma(
      card.words(0),
      0,
      linDmaCtl('gaudi2'),
      MIB,
      ...halves(card.hostVa + BigInt(MIB)),
      ...halves(0x1000fffffd000000n),
    );
    card.node.inject(0, { kind: 'engine-failure' });
    card.submit(0, 24);
    expect(card.client.wait(1n, 60_000_000).result).toBeLessThan(0);
  });
});
