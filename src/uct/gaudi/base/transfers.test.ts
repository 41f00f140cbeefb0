/** The transfers of one interface over a card whose transfers end when the test says so. */

import { afterEach, describe, expect, it } from 'vitest';
import { deviceMemory, type FakeTransfer, fakeCard, hostMemory } from '../../../../test/fixtures/driver/fake-card.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion, IovEntry } from '../../api/iface.ts';
import type { MdMemory } from '../../api/memory.ts';
import { canShort, DmaEndpoint, DmaTransfers } from './transfers.ts';

expectNoLeaks();

class Ended implements Completion {
  count = 1;
  failure: Status = Status.OK;
  calls = 0;
  onComplete(): void {
    this.calls += 1;
  }
}

const entry = (memory: MdMemory, offset: number, byteLength: number): IovEntry => ({ memory, offset, byteLength });
const shortPuts = () => new Ended() as unknown as Parameters<DmaTransfers['putShort']>[6];
const counterOf = (puts: unknown): Ended => puts as Ended;
const detach = ({ buffer }: Uint8Array): void => void structuredClone(buffer, { transfer: [buffer as ArrayBuffer] });

let made: ReturnType<typeof fakeCard>;
function open(transfersMax?: number) {
  made = fakeCard();
  const { memory, target } = deviceMemory(made);
  const host = hostMemory(new Uint8Array(4096));
  const transfers = new DmaTransfers(made.card, 0, transfersMax);
  const puts = shortPuts();
  counterOf(puts).count = 0;
  /** Starts a put of `byteLength` bytes from memory that stays put, or a get. */
  const list = (isPut: boolean, entries: readonly IovEntry[], completion = new Ended()) => {
    transfers.remote.set(target, 0, undefined, isPut);
    return { status: transfers.list(entries, completion), completion };
  };
  return { ...made, transfers, memory, target, host, puts, list };
}
afterEach(() => made.card.landings.close());

describe('a flush', () => {
  it('waits for the transfers of every direction that started before it, and for no later one', () => {
    const { transfers, dma, host, list, puts, memory } = open();
    list(true, [entry(host.memory, 0, 8)]);
    list(false, [entry(host.memory, 0, 8)]);
    list(true, [entry(memory, 0, 8)]);
    const [put, get, copy] = dma.started as [FakeTransfer, FakeTransfer, FakeTransfer];
    const flushed = new Ended();
    expect(transfers.flush(flushed, puts)).toBe(Status.INPROGRESS);
    list(true, [entry(host.memory, 0, 8)]);
    list(false, [entry(host.memory, 0, 8)]);
    for (const transfer of [copy, put, get]) {
      transfers.progress();
      expect(flushed.calls).toBe(0);
      dma.end(Status.OK, transfer);
    }
    expect(transfers.outstanding).toBe(3);
    transfers.progress();
    expect([flushed.calls, flushed.failure, transfers.outstanding]).toEqual([1, Status.OK, 2]);
  });

  it('of nothing is done at once, and asks the card before it waits', () => {
    const { transfers, dma, list, host, puts } = open();
    expect(transfers.flush(undefined, puts)).toBe(Status.OK);
    list(true, [entry(host.memory, 0, 8)]);
    expect(transfers.flush(undefined, puts)).toBe(Status.INPROGRESS);
    dma.onProgress = () => {
      dma.end(Status.OK);
      return 1;
    };
    expect(transfers.flush(new Ended(), puts)).toBe(Status.OK);
  });

  it('reports the failure of the short puts of its endpoint once, whether or not it waits', () => {
    const { transfers, dma, puts, target } = open();
    const put = () => transfers.putShort(new Uint8Array(8), 0, target, 0, 8, undefined, puts);
    expect(put()).toBe(Status.OK);
    dma.end(Status.IO_ERROR);
    const others = shortPuts();
    expect(transfers.flush(undefined, others)).toBe(Status.OK);
    expect([transfers.flush(undefined, puts), transfers.flush(undefined, puts)]).toEqual([Status.IO_ERROR, Status.OK]);
    expect(put()).toBe(Status.OK);
    const [first, second] = [new Ended(), new Ended()];
    for (const completion of [first, second]) transfers.flush(completion, puts);
    dma.end(Status.TIMED_OUT);
    transfers.progress();
    expect([first.failure, first.calls, second.failure, second.calls]).toEqual([Status.TIMED_OUT, 1, Status.OK, 1]);
    expect(transfers.failures).toBe(2);
  });

  it('is refused beyond 256 that wait, and accepted again when they have ended', () => {
    const { transfers, dma, list, host, puts } = open();
    list(true, [entry(host.memory, 0, 8)]);
    const flushes = Array.from({ length: 256 }, () => new Ended());
    for (const flush of flushes) expect(transfers.flush(flush, puts)).toBe(Status.INPROGRESS);
    expect(transfers.flush(new Ended(), puts)).toBe(Status.NO_RESOURCE);
    dma.end(Status.OK);
    transfers.progress();
    expect(flushes.every(({ calls }) => calls === 1)).toBe(true);
    list(true, [entry(host.memory, 0, 8)]);
    expect(transfers.flush(new Ended(), puts)).toBe(Status.INPROGRESS);
  });
});

describe('short transfers', () => {
  it('without a completion are counted for the flush, those with one are not', () => {
    const { transfers, dma, puts, target } = open();
    const completion = new Ended();
    expect(transfers.putShort(new Uint8Array(9), 1, target, 3, 8, completion, puts)).toBe(Status.INPROGRESS);
    expect(counterOf(puts).count).toBe(0);
    expect(transfers.putShort(new Uint8Array(9), 1, target, 3, 8, undefined, puts)).toBe(Status.OK);
    expect([counterOf(puts).count, made.card.inFlight]).toEqual([1, 2]);
    expect(dma.started[0]).toMatchObject({ kind: 'putShort', sourceOffset: 1, destinationOffset: 3, byteLength: 8 });
    dma.end(Status.OK);
    dma.end(Status.OK);
    expect([completion.calls, counterOf(puts).count, made.card.inFlight, dma.freed]).toEqual([1, 0, 0, 2]);
  });

  it('of a card that has failed return its failure, and leave nothing behind', () => {
    const { transfers, dma, puts, target } = open();
    dma.status = Status.IO_ERROR;
    expect(transfers.putShort(new Uint8Array(8), 0, target, 0, 8, undefined, puts)).toBe(Status.IO_ERROR);
    expect(transfers.getShort(new Uint8Array(8), 0, target, 0, 8, new Ended())).toBe(Status.IO_ERROR);
    expect([dma.freed, made.card.inFlight, counterOf(puts).count]).toEqual([2, 0, 0]);
    expect(transfers.flush(undefined, puts)).toBe(Status.OK);
  });

  it('are refused while the card has no room, and for a completion that is none', () => {
    const { transfers, dma, puts, target } = open();
    expect(transfers.putShort(new Uint8Array(8), 0, target, 0, 8, 7 as never, puts)).toBe(Status.INVALID_PARAM);
    expect(transfers.getShort(new Uint8Array(8), 0, target, 0, 8, 7 as never)).toBe(Status.INVALID_PARAM);
    dma.room = 0;
    expect(transfers.putShort(new Uint8Array(8), 0, target, 0, 8, undefined, puts)).toBe(Status.NO_RESOURCE);
    expect(transfers.getShort(new Uint8Array(8), 0, target, 0, 8, new Ended())).toBe(Status.NO_RESOURCE);
    expect(counterOf(puts).count).toBe(0);
  });

  it('are of 1 to 1024 bytes of an array', () => {
    const bytes = new Uint8Array(2000);
    const of = (offset: number, byteLength: number) => canShort(bytes, offset, byteLength);
    expect([of(0, 1), of(976, 1024), of(0, 1025), of(0, 0), of(977, 1024)]).toEqual([true, true, false, false, false]);
  });
});

describe('the limit of an interface', () => {
  it('is exact, over all directions, and counts what has not ended', () => {
    const { transfers, dma, list, host, puts, target } = open(3);
    expect(transfers.iovMax).toBe(3);
    list(false, [entry(host.memory, 0, 8)]);
    list(true, [entry(host.memory, 0, 8)]);
    expect(list(true, [entry(host.memory, 0, 8), entry(host.memory, 8, 8)]).status).toBe(Status.NO_RESOURCE);
    expect(transfers.putShort(new Uint8Array(8), 0, target, 0, 8, undefined, puts)).toBe(Status.OK);
    expect(transfers.putShort(new Uint8Array(8), 0, target, 0, 8, undefined, puts)).toBe(Status.NO_RESOURCE);
    expect(transfers.getShort(new Uint8Array(8), 0, target, 0, 8, new Ended())).toBe(Status.NO_RESOURCE);
    dma.end(Status.OK);
    expect(transfers.getShort(new Uint8Array(8), 0, target, 0, 8, new Ended())).toBe(Status.INPROGRESS);
  });
});

describe('a list', () => {
  it('moves each entry to its place, in the direction of its memories', () => {
    const { dma, list, host, memory, transfers, target } = open();
    const entries = [entry(host.memory, 1, 10), entry(host.memory, 5, 0), entry(memory, 3, 30)];
    const remote = deviceMemory(made);
    transfers.remote.set(remote.target, 7, undefined, true);
    const put = new Ended();
    expect(transfers.list(entries, put)).toBe(Status.INPROGRESS);
    expect(put.count).toBe(2);
    expect(dma.started).toMatchObject([
      {
        kind: 'hostToDevice',
        source: host.mapping,
        sourceOffset: 65,
        destination: remote.target,
        destinationOffset: 7,
      },
      { kind: 'deviceToDevice', source: target, sourceOffset: 3, destination: remote.target, destinationOffset: 17 },
    ]);
    for (let i = 0; i < 2; i++) dma.end(Status.OK);
    expect([put.calls, put.failure]).toEqual([1, Status.OK]);
    expect(list(false, entries).status).toBe(Status.INPROGRESS);
    expect(dma.started.map(({ kind, byteLength }) => [kind, byteLength])).toEqual([
      ['deviceToHost', 10],
      ['deviceToDevice', 30],
    ]);
    const [back] = dma.started;
    expect(back).toMatchObject({ source: target, sourceOffset: 0, destination: host.mapping, destinationOffset: 65 });
    transfers.remote.set(host.mapping, 64, host.memory, true);
    transfers.list([entry(memory, 0, 8)], new Ended());
    transfers.remote.set(host.mapping, 64, host.memory, false);
    transfers.list([entry(memory, 0, 8)], new Ended());
    expect(dma.started.slice(2).map(({ kind }) => kind)).toEqual(['deviceToHost', 'hostToDevice']);
  });

  it('without bytes is done', () => {
    const { list, host } = open();
    const { status, completion } = list(true, [entry(host.memory, 0, 0), entry(host.memory, 8, 0)]);
    expect([status, completion.count]).toEqual([Status.OK, 1]);
  });

  it('is started only if the card has room for all of it', () => {
    const { dma, list, host } = open();
    const two = [entry(host.memory, 0, 8), entry(host.memory, 8, 8)];
    dma.room = 1;
    expect(list(true, two).status).toBe(Status.NO_RESOURCE);
    expect(dma.started).toEqual([]);
    dma.room = 2;
    expect(list(true, two).status).toBe(Status.INPROGRESS);
  });

  it('whose card fails in its middle ends with the failure when those before have ended', () => {
    const { dma, list, host, transfers } = open();
    const { dmaHostToDeviceAsync } = dma;
    let calls = 0;
    dma.dmaHostToDeviceAsync = function (...args) {
      calls += 1;
      if (calls === 3) this.status = Status.IO_ERROR;
      return dmaHostToDeviceAsync.apply(this, args);
    };
    const { status, completion } = list(
      true,
      [0, 8, 16, 24].map((offset) => entry(host.memory, offset, 8)),
    );
    expect([status, completion.count, completion.failure]).toEqual([Status.INPROGRESS, 2, Status.IO_ERROR]);
    dma.end(Status.OK);
    expect(completion.calls).toBe(0);
    dma.end(Status.OK);
    expect([completion.calls, completion.failure, transfers.failures]).toEqual([1, Status.IO_ERROR, 0]);
    expect(list(true, [entry(host.memory, 0, 8)]).status).toBe(Status.IO_ERROR);
  });
});

describe('memory that a program may detach', () => {
  const get = (bytes: Uint8Array) => {
    const opened = open();
    const host = hostMemory(bytes, false);
    const started = opened.list(false, [entry(host.memory, 4, 8)]);
    return { ...opened, ...started, detachable: host };
  };

  it('gets its bytes from a landing, when the transfer has ended', () => {
    const bytes = new Uint8Array(16);
    const { dma, status, completion, detachable, mappings, transfers, puts } = get(bytes);
    expect(status).toBe(Status.INPROGRESS);
    expect(dma.started[0]).toMatchObject({ destination: mappings[0], destinationOffset: 0 });
    expect([detachable.mapping.inFlight, made.card.inFlight]).toEqual([1, 1]);
    expect(transfers.flush(undefined, puts)).toBe(Status.INPROGRESS);
    dma.end(Status.OK);
    expect([completion.calls, completion.failure, dma.freed]).toEqual([1, Status.OK, 1]);
    expect([detachable.mapping.inFlight, made.card.inFlight]).toEqual([0, 0]);
    expect(transfers.flush(undefined, puts)).toBe(Status.OK);
  });

  it('gets the bytes of a put from a card at their places, behind each other', () => {
    const { transfers, dma, memory } = open();
    const bytes = new Uint8Array(32);
    const remote = hostMemory(bytes, false);
    // The remote side begins at byte 5 of the buffer, which is 64 bytes behind the start of its pages.
    transfers.remote.set(remote.mapping, 64 + 5, remote.memory, true);
    const { landings } = made.card;
    const taken: { memory: { u8: Uint8Array } }[] = [];
    const take = landings.take.bind(landings);
    landings.take = (...args) => {
      const landing = take(...args);
      if (landing !== undefined) taken.push(landing);
      return landing;
    };
    const put = new Ended();
    expect(transfers.list([entry(memory, 0, 3), entry(memory, 8, 2)], put)).toBe(Status.INPROGRESS);
    taken[0]!.memory.u8.set([1, 2, 3]);
    taken[1]!.memory.u8.set([4, 5]);
    for (let i = 0; i < 2; i++) dma.end(Status.OK);
    expect([put.calls, ...bytes.subarray(4, 11)]).toEqual([1, 0, 1, 2, 3, 4, 5, 0]);
  });

  it('waits while landings are in use, and holds nothing meanwhile', () => {
    const { list } = open();
    const host = hostMemory(new Uint8Array(64), false);
    const { landings } = made.card;
    const take = landings.take.bind(landings);
    let calls = 0;
    landings.take = (...args) => {
      calls += 1;
      return calls === 2 ? undefined : take(...args);
    };
    const two = [entry(host.memory, 0, 8), entry(host.memory, 8, 8)];
    expect([list(false, two).status, host.mapping.inFlight]).toEqual([Status.NO_RESOURCE, 0]);
    expect(list(false, two).status).toBe(Status.INPROGRESS);
    expect(host.mapping.inFlight).toBe(2);
    for (let i = 0; i < 2; i++) made.dma.end(Status.OK);
  });

  it('receives nothing after it was detached, nor of a transfer that failed', () => {
    const bytes = new Uint8Array(16);
    const first = get(bytes);
    detach(bytes);
    first.dma.end(Status.OK);
    expect([first.completion.failure, first.transfers.failures]).toEqual([Status.INVALID_ADDR, 1]);
    made.card.landings.close();
    const second = get(new Uint8Array(16));
    second.dma.end(Status.IO_ERROR);
    expect([second.completion.failure, second.transfers.failures]).toEqual([Status.IO_ERROR, 1]);
  });

  it('is not held by transfers that could not start', () => {
    const opened = open();
    const host = hostMemory(new Uint8Array(64), false);
    const three = [0, 8, 16].map((offset) => entry(host.memory, offset, 8));
    const { dmaDeviceToHostAsync } = opened.dma;
    let calls = 0;
    opened.dma.dmaDeviceToHostAsync = function (...args) {
      calls += 1;
      return calls === 2 ? undefined : dmaDeviceToHostAsync.apply(this, args);
    };
    const { status, completion } = opened.list(false, three);
    expect([status, completion.count, completion.failure]).toEqual([Status.INPROGRESS, 1, Status.NO_RESOURCE]);
    expect(host.mapping.inFlight).toBe(1);
    opened.dma.end(Status.OK);
    expect(host.mapping.inFlight).toBe(0);
    calls = 1;
    expect(opened.list(false, three).status).toBe(Status.NO_RESOURCE);
    expect(host.mapping.inFlight).toBe(0);
  });

  it('is not held by a list whose second landing cannot be made', () => {
    const opened = open();
    const host = hostMemory(new Uint8Array(200_000), false);
    const first = opened.list(false, [entry(host.memory, 0, 8)]);
    opened.dma.end(Status.OK);
    expect(first.completion.calls).toBe(1);
    // The first entry has the landing that is kept; the second needs a new one.
    opened.mapFailure = undefined;
    made.mapFailure = new Error('no more pages');
    const two = [entry(host.memory, 0, 8), entry(host.memory, 8, 8)];
    expect(() => opened.list(false, two)).toThrow('no more pages');
    expect(host.mapping.inFlight).toBe(0);
  });

  it('fails a put if it was detached while the card read it', () => {
    const opened = open();
    const bytes = new Uint8Array(16);
    const host = hostMemory(bytes, false);
    const both = [entry(opened.host.memory, 0, 8), entry(host.memory, 0, 8)];
    const kept = opened.list(true, both);
    for (let i = 0; i < 2; i++) opened.dma.end(Status.OK);
    expect([kept.completion.calls, kept.completion.failure]).toEqual([1, Status.OK]);
    const lost = opened.list(true, both);
    expect(opened.dma.started[0]).toMatchObject({ source: opened.host.mapping });
    detach(bytes);
    for (let i = 0; i < 2; i++) opened.dma.end(Status.OK);
    expect([lost.completion.calls, lost.completion.failure]).toEqual([1, Status.INVALID_ADDR]);
  });

  it('is checked anew for the next list after one that could not start', () => {
    const opened = open();
    const bytes = new Uint8Array(16);
    const host = hostMemory(bytes, false);
    opened.dma.status = Status.IO_ERROR;
    expect(opened.list(true, [entry(host.memory, 0, 8)]).status).toBe(Status.IO_ERROR);
    detach(bytes);
    opened.dma.status = Status.INPROGRESS;
    const other = hostMemory(new Uint8Array(16), false);
    const { completion } = opened.list(true, [entry(other.memory, 0, 8)]);
    opened.dma.end(Status.OK);
    expect([completion.calls, completion.failure]).toEqual([1, Status.OK]);
  });
});

describe('the check of one side', () => {
  it('names the reason', () => {
    const { transfers, memory, target, host } = open();
    const other = deviceMemory(fakeCard(1));
    const check = (side: MdMemory, offset = 0, byteLength = 8) => transfers.checkSide(side, offset, byteLength);
    expect(check(memory, 4088)).toBe(Status.OK);
    expect(check(memory, 4089)).toBe(Status.INVALID_ADDR);
    expect(check(host.memory, 4089)).toBe(Status.INVALID_ADDR);
    expect(check(other.memory)).toBe(Status.UNREACHABLE);
    expect(check({} as MdMemory)).toBe(Status.INVALID_PARAM);
    target.live = false;
    expect(check(memory)).toBe(Status.INVALID_ADDR);
    host.memory.live = false;
    expect(check(host.memory)).toBe(Status.INVALID_ADDR);
    const bytes = new Uint8Array(8);
    const detached = hostMemory(bytes, false);
    detach(bytes);
    expect(check(detached.memory)).toBe(Status.INVALID_PARAM);
  });
});

describe('the endpoint', () => {
  class Endpoint extends DmaEndpoint<string> {
    readonly calls: unknown[] = [];
    protected zcopy(
      _iov: readonly IovEntry[],
      offset: number,
      rkey: string,
      _done: Completion,
      isPut: boolean,
    ): Status {
      this.calls.push([offset, rkey, isPut]);
      return Status.INPROGRESS;
    }
  }

  it('puts, gets, corks, and fences over all directions', () => {
    const { transfers, dma, list, host, memory } = open();
    const endpoint = new Endpoint(transfers);
    endpoint.putZcopy([], 1, 'put', new Ended());
    endpoint.getZcopy([], 2, 'get', new Ended());
    expect(endpoint.calls).toEqual([
      [1, 'put', true],
      [2, 'get', false],
    ]);
    endpoint.cork();
    endpoint.uncork();
    expect(dma.corks).toEqual([true, false]);
    expect(endpoint.fence()).toBe(Status.OK);
    list(true, [entry(memory, 0, 8)]);
    expect(endpoint.fence()).toBe(Status.INPROGRESS);
    dma.end(Status.OK);
    expect([endpoint.fence(), endpoint.flush(undefined)]).toEqual([Status.OK, Status.OK]);
    list(true, [entry(host.memory, 0, 8)]);
    const flushed = new Ended();
    expect(endpoint.flush(flushed)).toBe(Status.INPROGRESS);
    expect(transfers.counters.node({ transport: 't', device: 'd' } as never).counters).toMatchObject({
      flush: 2,
      flush_wait: 1,
      fence: 3,
    });
    dma.end(Status.OK);
    transfers.progress();
    expect(flushed.calls).toBe(1);
  });

  it('knows the failure of its card only if the card has reported one', () => {
    const { transfers, dma } = open();
    expect(transfers.errorOf(Status.IO_ERROR)).toBeUndefined();
    dma.hasFailed = true;
    expect(transfers.errorOf(Status.IO_ERROR)).toBeInstanceOf(Error);
    dma.hasFailed = false;
    dma.file.lostReason = 'removed';
    expect(transfers.errorOf(Status.IO_ERROR)).toBeInstanceOf(Error);
  });
});
