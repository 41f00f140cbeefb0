/** Long messages of several pieces: the peer reads or writes their memory in place, as for one piece, whether they follow each other or are apart. */

import { describe, expect, it } from 'vitest';
import {
  type IovPiece,
  type LocalBuffer,
  type LocalMemory,
  type MemoryHandle,
  type Request,
  Status,
} from '../../../src/index.ts';
import {
  connectionKind,
  expectContents,
  expectSame,
  fill,
  mappedOf,
  memoryOf,
  type Pair,
  pattern,
  type Side,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

const AM_ID = 5;
const KEEP = { noImmediateCompletion: true };
const SIZES = [100_001, 0, 70_003, 1, 262_147];
const TOTAL = SIZES.reduce((sum, size) => sum + size, 0);
/** Byte of the memory at which the first piece begins. */
const FIRST = 13;
/** Bytes between pieces that are apart. */
const GAP = 7;
const MEMORY_BYTES = FIRST + TOTAL + SIZES.length * GAP;

const SHAPES = ['one piece', 'pieces', 'views', 'pieces apart'] as const;
type Shape = (typeof SHAPES)[number];

/** A message of a side in mapped memory. */
interface Message {
  readonly memory: MemoryHandle;
  readonly pieces: readonly Required<IovPiece>[];
  readonly local: LocalBuffer;
}

function messageOf(side: Side, shape: Shape): Message {
  const memory = mappedOf(side, 'allocated', MEMORY_BYTES);
  if (shape === 'one piece') {
    const piece = { memory, offset: FIRST, byteLength: TOTAL };
    return { memory, pieces: [piece], local: memory.bytes!.subarray(FIRST, FIRST + TOTAL) };
  }
  let next = FIRST;
  const pieces = SIZES.map((byteLength) => {
    const offset = next;
    next += byteLength + (shape === 'pieces apart' ? GAP : 0);
    return { memory, offset, byteLength };
  });
  const views = pieces.map(({ offset, byteLength }) => ({
    memory: memory.bytes!.subarray(offset, offset + byteLength),
  }));
  return { memory, pieces, local: shape === 'views' ? views : pieces };
}

function store({ memory, pieces }: Message, bytes: Uint8Array): void {
  let at = 0;
  for (const { offset, byteLength = 0 } of pieces) {
    memory.bytes!.set(bytes.subarray(at, at + byteLength), offset);
    at += byteLength;
  }
}

/** Fails unless the memory has the bytes in its pieces, and zeros elsewhere. */
function expectStored(side: Side, { memory, pieces }: Message, bytes: Uint8Array): void {
  const expected = messageOf(side, 'one piece').memory;
  store({ memory: expected, pieces, local: expected }, bytes);
  expectSame(memory.bytes!, expected.bytes!);
  unmap(side, expected);
}

function tagged({ ab, two }: Pair, from: Message, to: Message): Promise<string | undefined> {
  const received = two.worker.tagRecv(to.local, { tag: 1 });
  return Promise.all([ab.tagSend(from.local, { tag: 1 }), received]).then(([sent]) => sent.protocol);
}

async function active({ ab, two }: Pair, from: Message, to: Message): Promise<string | undefined> {
  const messages = two.worker.messages(AM_ID);
  const received = messages.next().then(({ value }) => value!.into(to.local));
  const [sent] = await Promise.all([ab.amSend(AM_ID, from.local), received]);
  await messages.return();
  return sent.protocol;
}

function progress({ one, two }: Pair): void {
  for (let i = 0; i < 20; i++) for (const { worker } of [one, two]) worker.progress();
}

function expectCanceled(request: Request): void {
  expect(request.isCompleted).toBe(true);
  expect(request.status).toBe(Status.CANCELED);
  request.free();
}

describe('a rendezvous of lists over posix', () => {
  const fixture = usePairs();

  it.each([
    ['one piece', 'one piece', 'get'],
    ['pieces', 'one piece', 'get'],
    ['views', 'one piece', 'get'],
    ['one piece', 'pieces', 'get'],
    ['one piece', 'pieces apart', 'get'],
    ['pieces', 'pieces', 'get'],
    ['views', 'views', 'get'],
    ['pieces', 'pieces apart', 'get'],
    ['pieces apart', 'one piece', 'get'],
    ['pieces apart', 'pieces', 'get'],
    ['pieces apart', 'views', 'get'],
    ['pieces apart', 'pieces apart', 'get'],
  ] as const)('moves %s to %s by rndv/%s', async (from, to, protocol) => {
    const pair = await fixture.pair(connectionKind('posix'));
    const { one, two } = pair;
    const source = messageOf(one, from);
    for (const [index, [kind, move]] of Object.entries({ tag: tagged, am: active }).entries()) {
      const target = messageOf(two, to);
      const bytes = pattern(TOTAL, index + 1);
      store(source, bytes);
      expect(await move(pair, source, target)).toBe(`${kind}/rndv/${protocol}`);
      expectStored(two, target, bytes);
      unmap(two, target.memory);
    }
    unmap(one, source.memory);
  });

  it('does not begin while a list fits into a frame', async () => {
    const pair = await fixture.pair(connectionKind('posix'));
    const memory = mappedOf(pair.one, 'allocated', 40_000);
    memory.bytes!.set(pattern(40_000, 3));
    const halves = [
      { memory, byteLength: 20_001 },
      { memory, offset: 20_001, byteLength: 19_999 },
    ];
    const target = new Uint8Array(40_000);
    const received = pair.two.worker.tagRecv(target, { tag: 1 });
    const [sent] = await Promise.all([pair.ab.tagSend(halves, { tag: 1 }), received]);
    expect(sent.protocol).toBe('tag/eager/bcopy');
    expectSame(target, pattern(40_000, 3));
    unmap(pair.one, memory);
  });

  // How the pieces of the two ends are mapped; each is a separate memory.
  it.each([
    ['posix', 'allocated', 'allocated', 'get'],
    ['posix', 'allocated', 'bytes', 'get'],
    ['posix', 'bytes', 'allocated', 'put'],
    ['posix', 'bytes', 'bytes', 'am'],
    ['cma and posix', 'bytes', 'bytes', 'get'],
    ['tcp', 'registered', 'allocated', 'get'],
    ['all transports', 'gaudi', 'gaudi', 'get'],
    ['RDMA', 'registered', 'bytes', 'get'],
  ] as const)('moves several memories over %s: from %s to %s by rndv/%s', async (name, from, to, protocol) => {
    const pair = await fixture.pair(connectionKind(name));
    const { one, two, ab } = pair;
    const sizes = SIZES.filter((size) => size > 0);
    const bytes = pattern(TOTAL, 8);
    const sources = sizes.map((size) => memoryOf(one, from, size));
    // Cut at other places.
    const targets = [...sizes].reverse().map((size) => memoryOf(two, to, size));
    let at = 0;
    for (const [i, source] of sources.entries()) {
      await fill(one, source, bytes.subarray(at, at + sizes[i]!));
      at += sizes[i]!;
    }
    const [sent] = await serving(pair, () =>
      Promise.all([
        ab.tagSend(
          sources.map((memory) => ({ memory })),
          { tag: 1 },
        ),
        two.worker.tagRecv(
          targets.map((memory) => ({ memory })),
          { tag: 1 },
        ),
      ]),
    );
    expect(sent.protocol).toBe(`tag/rndv/${protocol}`);
    at = 0;
    for (const target of targets) {
      await expectContents(two, target, bytes.subarray(at, at + target.byteLength));
      at += target.byteLength;
    }
    unmap(one, ...sources);
    unmap(two, ...targets);
  });

  it('of more pieces than a list of keys takes goes through fragments', async () => {
    const pair = await fixture.pair(connectionKind('posix'));
    const { one, two, ab } = pair;
    const memory = mappedOf(one, 'allocated', 130 * 2000);
    memory.bytes!.set(pattern(130 * 2000, 2));
    const pieces = Array.from({ length: 65 }, (_, i) => ({ memory, offset: i * 4000, byteLength: 2000 }));
    const target = new Uint8Array(65 * 2000);
    const [sent] = await Promise.all([ab.tagSend(pieces, { tag: 1 }), two.worker.tagRecv(target, { tag: 1 })]);
    expect(sent.protocol).toBe('tag/rndv/am');
    for (const [i, { offset }] of pieces.entries()) {
      expectSame(target.subarray(i * 2000, (i + 1) * 2000), memory.bytes!.subarray(offset, offset + 2000));
    }
    unmap(one, memory);
  });

  it.each([
    ['cma and posix', 'bytes', /^tag\/rndv\/get$/],
    ['all transports', 'gaudi', /^tag\/rndv\/(get|put)$/],
  ] as const)('reaches pieces in order over %s, too: %s', async (name, kind, protocol) => {
    const pair = await fixture.pair(connectionKind(name));
    const { one, two, ab } = pair;
    const [source, target] = [memoryOf(one, kind, TOTAL), memoryOf(two, kind, TOTAL)];
    await fill(one, source, pattern(TOTAL, 6));
    const cutAt = (memory: LocalMemory, byteLength: number): IovPiece[] => [
      { memory, byteLength },
      { memory, offset: byteLength },
    ];
    const received = two.worker.tagRecv(cutAt(target, 70_001), { tag: 1 });
    const [sent] = await Promise.all([ab.tagSend(cutAt(source, 123_457), { tag: 1 }), received]);
    expect(sent.protocol).toMatch(protocol);
    await expectContents(two, target, pattern(TOTAL, 6));
    unmap(one, source);
    unmap(two, target);
  });

  it('a cancelled send is taken back by its offer, and its memory may go', async () => {
    const pair = await fixture.pair(connectionKind('posix'));
    const { one, two, ab } = pair;
    const [first, second] = [messageOf(one, 'pieces'), messageOf(one, 'pieces')];
    store(second, pattern(TOTAL, 9));
    const request = ab.tagSendNbx(first.local, 0, 0, 1, KEEP) as Request;
    progress(pair);
    request.cancel();
    progress(pair);
    expectCanceled(request);
    unmap(one, first.memory);
    const target = messageOf(two, 'pieces');
    expect(await tagged(pair, second, target)).toBe('tag/rndv/get');
    expectStored(two, target, pattern(TOTAL, 9));
    unmap(one, second.memory);
    unmap(two, target.memory);
  });

  it('a forced close of the sender ends its offered messages, and no other endpoint', async () => {
    const pair = await fixture.pair(connectionKind('posix'));
    const { one, two, ab } = pair;
    const other = one.worker.endpoint(two.worker.address());
    const [first, second] = [messageOf(one, 'pieces'), messageOf(one, 'pieces')];
    store(second, pattern(TOTAL, 9));
    const request = ab.tagSendNbx(first.local, 0, 0, 1, KEEP) as Request;
    one.worker.progress();
    await ab.close({ force: true });
    expectCanceled(request);
    unmap(one, first.memory);
    const target = messageOf(two, 'pieces');
    await serving(pair, async () => {
      const received = two.worker.tagRecv(target.local, { tag: 2 });
      await Promise.all([other.tagSend(second.local, { tag: 2 }), received]);
      await other.close();
    });
    expectStored(two, target, pattern(TOTAL, 9));
    unmap(one, second.memory);
    unmap(two, target.memory);
  });

  it('nothing is written to pieces whose receive has ended with its worker', async () => {
    const pair = await fixture.pair(connectionKind('posix'));
    const { one, two, ab } = pair;
    // Not mapped: the receiver has to ask for it.
    const source = { local: [{ memory: pattern(TOTAL, 4) }] };
    const target = messageOf(two, 'pieces');
    const receive = two.worker.tagRecvNbx(target.local, 0, 0, 1, undefined, KEEP) as Request;
    const send = ab.tagSendNbx(source.local, 0, 0, 1, KEEP) as Request;
    one.worker.progress();
    // It has given its key to the sender, which has not seen it yet.
    two.worker.progress();
    const isOpen = !receive.isCompleted;
    await two.worker.close();
    expect(isOpen).toBe(true);
    expect(receive.status).not.toBe(Status.OK);
    receive.free();
    unmap(two, target.memory);
    while (!send.isCompleted) one.worker.progress();
    expect(send.status).not.toBe(Status.OK);
    send.free();
  });
});
