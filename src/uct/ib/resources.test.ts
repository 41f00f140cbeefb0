/** What an interface of ib does without resources or messages: sleeps, credits and atomic operations that wait, memory that stays, what it leaves at its close. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CountingCompletion, keyOf, type MdUnderTest, ownBytes } from '../../../test/contract/uct/uct-fixture.ts';
import { openIb } from '../../../test/contract/uct/uct-implementations.ts';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { progressUntil } from '../../../test/fixtures/progress-until.ts';
import { createTestLog, type TestLog } from '../../../test/fixtures/test-log.ts';
import { WordOperation } from '../../api/operation/word-operation.ts';
import type { RdmaContext } from '../../emulator/rdma/rdma-context.ts';
import { mapAnonymous } from '../../sys/index.ts';
import { OPEN } from '../../ucs/debug/diagnostics.ts';
import { Status } from '../../ucs/type/status.ts';
import { AsyncEventType } from '../../verbs/abi.ts';
import { AtomicOperation, type UctEndpoint } from '../api/iface.ts';
import type { MdMemory } from '../api/memory.ts';
import { hostRange } from '../base/host/memory.ts';
import type { IbEndpoint } from './endpoint.ts';
import type { IbIface } from './iface.ts';

const PAGE = 4096;
const LONG_NS = 60e9;

expectNoLeaks();
let log: TestLog;
let under: MdUnderTest;
let near: IbIface;
let far: IbIface;
let received: number;

beforeEach(() => {
  log = createTestLog();
  open();
});
afterEach(() => {
  close();
  log.expectQuiet();
});

function open(config: Readonly<Record<string, string>> = {}): void {
  under = openIb(log, config);
  [near, far] = [0, 1].map((i) => under.md.openIface(under.md.resources[i]!) as IbIface) as [IbIface, IbIface];
  received = 0;
  for (const iface of [near, far]) {
    iface.setAmHandler(() => {
      received += 1;
    });
  }
}

function close(): void {
  near.close();
  far.close();
  under.md.close();
  under.close();
}

const until = (isDone: () => boolean): Promise<void> => progressUntil([near, far], isDone);
const send = (endpoint: UctEndpoint): Status => endpoint.amShort(1, new Int32Array(2), 2, undefined, 0, 0);

/** An endpoint whose connection is there, with nothing in flight. */
async function connected(from: IbIface, to: IbIface): Promise<IbEndpoint> {
  const endpoint = from.connect(to.address) as IbEndpoint;
  await until(() => send(endpoint) === Status.OK);
  await until(() => received > 0 && endpoint.flush(undefined) === Status.OK);
  received = 0;
  return endpoint;
}

/** Whether a sleep has ended: without a turn of the event loop, or within some. */
async function isAwake(sleep: Promise<void>, turns: number): Promise<boolean> {
  let awake = false;
  void sleep.then(() => {
    awake = true;
  });
  for (let i = 0; i < 5; i++) await Promise.resolve();
  for (let turn = 0; turn < turns && !awake; turn++) await new Promise(setImmediate);
  return awake;
}

describe('a sleep', () => {
  it('ends with a message', async () => {
    const endpoint = await connected(far, near);
    const sleep = near.wait(LONG_NS);
    expect(await isAwake(sleep, 0)).toBe(false);
    expect(send(endpoint)).toBe(Status.OK);
    expect(await isAwake(sleep, 10_000)).toBe(true);
    await until(() => received === 1);
  });

  it('ends with progress that finds a message', async () => {
    const endpoint = await connected(far, near);
    const sleep = near.wait(LONG_NS);
    expect(send(endpoint)).toBe(Status.OK);
    for (let round = 0; round < 1000 && received === 0; round++) {
      far.progress();
      near.progress();
    }
    expect([received, await isAwake(sleep, 0)]).toEqual([1, true]);
  });

  it('does not begin while a failure is not reported', async () => {
    const failed: Status[] = [];
    near.setErrorHandler((_endpoint, status) => failed.push(status));
    await connected(near, far);
    near.deviceFailed();
    expect(await isAwake(near.wait(LONG_NS), 0)).toBe(true);
    expect(failed).toEqual([]);
    near.progress();
    expect(failed).toEqual([Status.CONNECTION_RESET]);
  });
});

describe('a connection', () => {
  it('is there soon after the reply of the peer', () => {
    const endpoint = near.connect(far.address);
    // An interface that connects to no peer reads requests in every 64th call.
    for (let round = 0; round < 70; round++) far.progress();
    for (let round = 0; round < 4; round++) {
      near.progress();
      far.progress();
    }
    expect(send(endpoint)).toBe(Status.OK);
  });

  it('gets back its credits when its peer has a slot again', async () => {
    close();
    open({ RC_FC_WND_SIZE: '4' });
    const endpoint = await connected(near, far);
    const { shared } = far;
    const { sendSlots } = shared;
    shared.sendSlots = 0;
    let sent = 0;
    while (send(endpoint) === Status.OK) sent += 1;
    await until(() => received === sent);
    for (let round = 0; round < 100; round++) {
      far.progress();
      near.progress();
    }
    expect(send(endpoint)).toBe(Status.NO_RESOURCE);
    shared.sendSlots = sendSlots;
    for (let round = 0; round < 100; round++) {
      far.progress();
      near.progress();
    }
    expect(send(endpoint)).toBe(Status.OK);
  });

  it('of another device does not fail with a device', async () => {
    log.allow(/^hca0: local catastrophic error$/);
    const failed: string[] = [];
    near.setErrorHandler(() => failed.push('near'));
    far.setErrorHandler(() => failed.push('far'));
    await connected(near, near);
    const other = await connected(far, far);
    (near.port.device.context as RdmaContext).onEvent({ type: AsyncEventType.DEVICE_FATAL, element: 0 });
    await until(() => failed.length > 0);
    for (let round = 0; round < 100; round++) far.progress();
    expect([failed, other.connection.failure]).toEqual([['near'], Status.OK]);
  });
});

describe('an atomic operation that is repeated', () => {
  let memory: MdMemory;
  let word: BigUint64Array;
  let endpoint: IbEndpoint;
  let completion: CountingCompletion;

  /** Starts one whose first attempt finds another word, and whose later ones find no slot. */
  async function start(): Promise<ReturnType<typeof vi.spyOn>> {
    endpoint = await connected(near, far);
    const bytes = ownBytes(64);
    word = new BigUint64Array(bytes.buffer, bytes.byteOffset, 1);
    word[0] = 0b0110n;
    memory = under.md.memReg(bytes);
    completion = new CountingCompletion();
    const call = WordOperation.of(AtomicOperation.XOR, 8, 0b0011n, 0n);
    expect(endpoint.atomic(call, 0, keyOf(under.md, memory), completion)).toBe(Status.INPROGRESS);
    expect(near.outstanding).toBe(1);
    return vi.spyOn(endpoint, 'postAtomic').mockReturnValue(Status.NO_RESOURCE);
  }

  it('waits until it has a slot', async () => {
    const post = await start();
    await until(() => post.mock.calls.length >= 3);
    expect([completion.calls, near.outstanding]).toEqual([0, 1]);
    post.mockRestore();
    await until(() => completion.calls > 0);
    expect([completion.failure, word[0], near.outstanding]).toEqual([Status.OK, 0b0101n, 0]);
    under.md.memDereg(memory);
  });

  it('is cancelled when its interface closes', async () => {
    const post = await start();
    await until(() => post.mock.calls.length >= 1);
    near.close();
    expect([completion.calls, completion.failure, near.outstanding]).toEqual([1, Status.CANCELED, 0]);
    under.md.memDereg(memory);
  });
});

describe('memory', () => {
  it('beside memory that was unmapped stays exposed', () => {
    const mapping = mapAnonymous(3 * PAGE);
    const pages = [0, 1, 2].map((i) => under.md.memReg(hostRange(mapping.address + i * PAGE, PAGE)));
    const keys = pages.map((memory) => {
      const packed = new Uint8Array(under.md.attributes.rkeyPackedBytes);
      under.md.mkeyPack(memory, packed, 0);
      return memory as MdMemory & { readonly exposed: unknown };
    });
    under.md.hostUnmapped!(mapping.address + PAGE, PAGE);
    expect(keys.map(({ exposed }) => exposed !== undefined)).toEqual([true, false, true]);
    for (const memory of pages) under.md.memDereg(memory);
    mapping.close();
  });

  it('inside a cached region is sent from its first byte', async () => {
    const endpoint = await connected(near, far);
    const source = ownBytes(PAGE);
    for (let i = 0; i < PAGE; i++) source[i] = i % 251;
    const [whole, memory] = [under.md.memReg(source), under.md.memReg(source.subarray(1000, 1100))];
    const target = ownBytes(100);
    const remote = under.md.memReg(target);
    const completion = new CountingCompletion();
    const iov = [{ memory, offset: 10, byteLength: 90 }];
    expect(endpoint.putZcopy(iov, 0, keyOf(under.md, remote), completion)).toBe(Status.INPROGRESS);
    await until(() => completion.calls > 0);
    expect([...target.subarray(0, 90)]).toEqual([...source.subarray(1010, 1100)]);
    for (const each of [whole, memory, remote]) under.md.memDereg(each);
  });
});

describe('an interface', () => {
  it('counts slots that were not given back at its close', () => {
    const before = OPEN.sendSlots;
    near.shared.tx.take();
    near.shared.sendSlots -= 2;
    near.close();
    const left = OPEN.sendSlots - before;
    OPEN.sendSlots = before;
    expect(left).toBe(3);
  });

  it('has room for a header beside the list of an operation', () => {
    const { attributes } = near.port.device;
    expect(near.attributes.put.iovMax).toBe(Math.min(4, attributes.maxSge - 1));
    expect(near.attributes.get.iovMax).toBe(near.attributes.put.iovMax);
  });
});
