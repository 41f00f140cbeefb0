/** The endpoint of gaudi_cpy over a card whose transfers end when the test says so, and the end of memory that transfers use. */

import { afterEach, describe, expect, it } from 'vitest';
import { openGaudiCopy } from '../../../../test/contract/uct/uct-implementations.ts';
import { deviceMemory, FakeMemory, fakeCard, hostMemory } from '../../../../test/fixtures/driver/fake-card.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { createTestLog } from '../../../../test/fixtures/test-log.ts';
import { GaudiErrorCode } from '../../../hlthunk/index.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion, IovEntry } from '../../api/iface.ts';
import { BlockMemory, type CardMemory } from '../base/memory.ts';
import { DmaTransfers } from '../base/transfers.ts';
import { CopyEndpoint, CopyKey } from './endpoint.ts';

expectNoLeaks();

class Ended implements Completion {
  count = 1;
  failure: Status = Status.OK;
  onComplete(): void {}
}

const entry = (memory: CardMemory, offset: number, byteLength: number): IovEntry => ({ memory, offset, byteLength });

describe('an endpoint of a card', () => {
  let made: ReturnType<typeof fakeCard>;
  afterEach(() => made.card.landings.close());

  function open() {
    made = fakeCard();
    const transfers = new DmaTransfers(made.card, 0, 4);
    const device = deviceMemory(made);
    const host = hostMemory(new Uint8Array(4096));
    const { counters } = transfers.counters.node({ transport: 't', device: 'd' } as never);
    const count = () => transfers.counters.node({ transport: 't', device: 'd' } as never).counters;
    return { ...made, endpoint: new CopyEndpoint(transfers), device, host, counters, count };
  }

  it('refuses a short operation on memory of another card, that was freed, of the host, and outside', () => {
    const { endpoint, device, host, dma } = open();
    const bytes = new Uint8Array(64);
    const other = deviceMemory(fakeCard(1)).memory;
    const run = (memory: CardMemory, offset = 0, length = 8) => [
      endpoint.putShort(bytes, 0, length, offset, new CopyKey(memory)),
      endpoint.getShort(bytes, 0, length, offset, new CopyKey(memory), new Ended()),
    ];
    expect(run(other)).toEqual([Status.UNREACHABLE, Status.UNREACHABLE]);
    expect(run(host.memory)).toEqual([Status.UNSUPPORTED, Status.UNSUPPORTED]);
    expect(run(device.memory, 4089)).toEqual([Status.INVALID_ADDR, Status.INVALID_ADDR]);
    expect(run(device.memory, 0, 65)).toEqual([Status.INVALID_PARAM, Status.INVALID_PARAM]);
    expect(run(device.memory, 4088)).toEqual([Status.OK, Status.INPROGRESS]);
    expect(dma.started.map(({ kind }) => kind)).toEqual(['putShort', 'getShort']);
    device.target.live = false;
    expect(run(device.memory)).toEqual([Status.INVALID_ADDR, Status.INVALID_ADDR]);
  });

  it('moves lists to and from memory of the card and the host, inside both, and counts them', () => {
    const { endpoint, device, host, dma, count } = open();
    const key = new CopyKey(device.memory);
    const two = [entry(host.memory, 0, 2048), entry(host.memory, 2048, 2048)];
    expect(endpoint.putZcopy(two, 1, key, new Ended())).toBe(Status.INVALID_ADDR);
    expect(endpoint.putZcopy(two, 0, key, new Ended())).toBe(Status.INPROGRESS);
    expect(dma.started.map(({ destinationOffset }) => destinationOffset)).toEqual([0, 2048]);
    expect(endpoint.getZcopy([entry(host.memory, 8, 8)], 16, key, new Ended())).toBe(Status.INPROGRESS);
    expect(count()).toMatchObject({ put: 1, get: 1, bytes_zcopy: 4096 + 8 });
    for (let i = 0; i < 3; i++) dma.end(Status.OK);
    // The remote side is host memory, 64 bytes behind the start of its pages.
    expect(endpoint.getZcopy([entry(device.memory, 8, 8)], 16, new CopyKey(host.memory), new Ended())).toBe(
      Status.INPROGRESS,
    );
    expect(dma.started[0]).toMatchObject({ kind: 'hostToDevice', sourceOffset: 80, destinationOffset: 8 });
    expect(count()).toMatchObject({ put: 1, get: 2 });
    const both = endpoint.putZcopy([entry(host.memory, 0, 8)], 0, new CopyKey(host.memory), new Ended());
    expect(both).toBe(Status.UNSUPPORTED);
    const five = new Array(5).fill(entry(host.memory, 0, 8));
    expect(() => endpoint.putZcopy(five, 0, key, new Ended())).toThrow(/at most 4 entries/);
  });

  it('has keys that name the place in the arena', () => {
    const { card } = open();
    const arena = { generation: 9, byteLength: 2 ** 20 };
    const block = Object.assign(new FakeMemory(1, 4096), { offset: 8192, arena });
    const part = Object.assign(new FakeMemory(2, 64), { offset: 100 });
    const of = (each: unknown) => new CopyKey(new BlockMemory('gaudi_copy', card, block as never, each as never));
    expect(of(part).describe()).toMatchObject({ offset: 8292, generation: 9, arenaBytes: 2 ** 20 });
    expect(of(undefined).describe()).toMatchObject({ offset: 8192 });
  });
});

describe('memory of a card', () => {
  const BUSY = expect.objectContaining({ code: GaudiErrorCode.DEVICE_BUSY });

  it('does not end while exactly one transfer uses it, and its key stays until then', () => {
    const log = createTestLog();
    const under = openGaudiCopy(log, { cards: 1 }, {});
    const { md } = under;
    const keyOf = (memory: Parameters<typeof md.mkeyPack>[0]): Uint8Array => {
      const packed = new Uint8Array(md.attributes.rkeyPackedBytes);
      md.mkeyPack(memory, packed, 0);
      return packed;
    };
    const whole = md.memAlloc(65_536, { memoryType: MemoryType.GAUDI });
    const { address } = whole;
    const part = md.memReg({ address, byteLength: 4096, sysDevice: 0, memoryType: MemoryType.GAUDI } as never);
    const packed = keyOf(part);
    const target = (part as BlockMemory).dmaIn();
    target.retain();
    expect(() => md.memDereg(part)).toThrow(BUSY);
    expect(md.rkeyUnpack(packed).byteLength).toBe(4096);
    target.release();
    md.memDereg(part);
    expect(() => md.rkeyUnpack(packed)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
    expect(() => md.memDereg(part)).toThrow(/has been freed or deregistered/);

    const wholeKey = keyOf(whole);
    const block = (whole as BlockMemory).dmaIn();
    block.retain();
    expect(() => md.memFree(whole)).toThrow(BUSY);
    expect(md.rkeyUnpack(wholeKey).byteLength).toBe(65_536);
    block.release();
    md.memFree(whole);
    expect(() => md.rkeyUnpack(wholeKey)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));

    const host = md.memReg(new Uint8Array(new ArrayBuffer(8192)));
    const hostKey = keyOf(host);
    md.memAdvise(host, 'will-need', 0, 8192);
    const mapping = (host as never as { dmaIn(position: number): { retain(): void; release(): void } }).dmaIn(0);
    mapping.retain();
    expect(() => md.memDereg(host)).toThrow(BUSY);
    expect(md.rkeyUnpack(hostKey).byteLength).toBe(8192);
    mapping.release();
    md.memDereg(host);
    expect(() => md.rkeyUnpack(hostKey)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
    md.close();
    under.close();
    log.expectQuiet();
  });
});
