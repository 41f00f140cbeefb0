/**
 * Parameters and lists whose getters start operations, over every kind of connection: the arguments of an operation are carried in one record for each
 * worker, and an operation that begins while another one is being described must not change it.
 */

import { describe, expect, it } from 'vitest';
import { type AtomicParams, type IovPiece, type Request, type RequestParams, Status } from '../../../src/index.ts';
import { CONNECTION_KINDS, keyFor, type Pair, serving, unmap, usePairs } from '../../fixtures/pair.ts';
import { fillPattern } from '../../fixtures/pattern.ts';

const BYTES = 96;
const NESTED_TAG = 9;

/** Sends other messages whenever it is read. */
class Interloper {
  readonly #pair: Pair;
  readonly #bytes: Uint8Array = new Uint8Array(7).fill(0xee);
  readonly #requests: Request[] = [];
  sent = 0;

  constructor(pair: Pair) {
    this.#pair = pair;
  }

  /** Begins an operation of every field of the record, and gives the value. */
  read<T>(value: T): T {
    this.sent += 1;
    const { ab } = this.#pair;
    const started = ab.tagSendNbx(this.#bytes, 2, 5, NESTED_TAG, { noImmediateCompletion: true });
    if (typeof started === 'number') throw new Error(`status ${started}`);
    this.#requests.push(started);
    return value;
  }

  params(): RequestParams {
    const interloper = this;
    return {
      get noImmediateCompletion() {
        return interloper.read(true);
      },
      get userData() {
        return interloper.read(undefined);
      },
    };
  }

  atomicParams(): AtomicParams {
    const interloper = this;
    return {
      get bits() {
        return interloper.read(64 as const);
      },
      get noImmediateCompletion() {
        return interloper.read(true);
      },
    };
  }

  list(memory: Uint8Array): readonly IovPiece[] {
    const interloper = this;
    const half = memory.byteLength / 2;
    const piece = (first: number): IovPiece => ({
      memory,
      get offset() {
        return interloper.read(first);
      },
      get byteLength() {
        return interloper.read(half);
      },
    });
    return [piece(0), piece(half)];
  }

  /** Receives the messages sent in between, and frees its requests. */
  async receive(): Promise<void> {
    const { two } = this.#pair;
    for (let i = 0; i < this.sent; i++) {
      const bytes = new Uint8Array(5);
      expect((await two.worker.tagRecv(bytes, { tag: NESTED_TAG })).byteLength).toBe(5);
      expect([...bytes]).toEqual(Array.from({ length: 5 }, () => 0xee));
    }
    for (const request of this.#requests) {
      await ended(request);
      request.free();
    }
  }
}

async function ended(request: Request): Promise<void> {
  while (!request.isCompleted) await new Promise(setImmediate);
}

function pattern(): Uint8Array {
  const bytes = new Uint8Array(BYTES);
  fillPattern(bytes, 5);
  return bytes;
}

/** Ends an operation that was started with a request. */
async function finish(started: Status | Request): Promise<void> {
  if (typeof started === 'number') throw new Error(`status ${started}`);
  await ended(started);
  expect(started.status).toBe(Status.OK);
  started.free();
}

type Case = (pair: Pair, other: Interloper) => Promise<readonly [actual: Uint8Array, expected: Uint8Array]>;

const CASES: Readonly<Record<string, Case>> = {
  'a put': ({ ab, two }, other) =>
    withTarget({ ab, two }, async (rkey, target) => {
      await finish(ab.putNbx(pattern(), 3, 64, rkey, 11, other.params()));
      await ab.flush();
      return [target.subarray(11, 75), pattern().subarray(3, 67)];
    }),
  'a get': ({ ab, two }, other) =>
    withTarget({ ab, two }, async (rkey, target) => {
      target.set(pattern());
      const bytes = new Uint8Array(BYTES);
      await finish(ab.getNbx(bytes, 3, 64, rkey, 11, other.params()));
      return [bytes.subarray(3, 67), pattern().subarray(11, 75)];
    }),
  'an atomic operation': ({ ab, two }, other) =>
    withTarget({ ab, two }, async (rkey, target) => {
      await finish(ab.atomicNbx('add', 5, rkey, 16, other.atomicParams()));
      await ab.flush();
      return [target.subarray(16, 24), new Uint8Array([5, 0, 0, 0, 0, 0, 0, 0])];
    }),
  'a tagged message': async ({ ab, two }, other) => {
    const bytes = new Uint8Array(64);
    const received = two.worker.tagRecv(bytes, { tag: 1 });
    await finish(ab.tagSendNbx(pattern(), 3, 64, 1, other.params()));
    await received;
    return [bytes, pattern().subarray(3, 67)];
  },
  'a tagged list': async ({ ab, two }, other) => {
    const bytes = new Uint8Array(BYTES);
    const received = two.worker.tagRecv(bytes, { tag: 1 });
    await finish(ab.tagSendNbx(other.list(pattern()), 0, 0, 1, other.params()));
    await received;
    return [bytes, pattern()];
  },
  'a receive': async ({ ab, two }, other) => {
    const bytes = new Uint8Array(BYTES);
    const receiving = two.worker.tagRecvNbx(other.list(bytes), 0, 0, 1, undefined, other.params());
    await ab.tagSend(pattern(), { tag: 1 });
    await finish(receiving);
    return [bytes, pattern()];
  },
  'an active message': async ({ ab, two }, other) => {
    const messages = two.worker.messages(3);
    const received = messages.next().then(({ value }) => value!.bytes());
    await finish(ab.amSendNbx(3, new Uint8Array([1, 2, 3]), pattern(), 3, 64, other.params()));
    const bytes = await received;
    await messages.return();
    return [bytes, pattern().subarray(3, 67)];
  },
  'a stream': async ({ ab, ba }, other) => {
    const bytes = new Uint8Array(64);
    const received = ba.streamRecv(bytes, { waitAll: true });
    await finish(ab.streamSendNbx(pattern(), 3, 64, other.params()));
    await received;
    return [bytes, pattern().subarray(3, 67)];
  },
};

type Sides = Pick<Pair, 'ab' | 'two'>;
type Result = Awaited<ReturnType<Case>>;

async function withTarget(
  { ab, two }: Sides,
  run: (rkey: ReturnType<typeof keyFor>, target: Uint8Array) => Promise<Result>,
): Promise<Result> {
  const target = two.context.memMap({ allocate: BYTES });
  const rkey = keyFor(ab, two, target);
  const [actual, expected] = await run(rkey, target.bytes!);
  const copied = actual.slice();
  rkey.release();
  unmap(two, target);
  return [copied, expected];
}

for (const kind of CONNECTION_KINDS) {
  describe(`arguments with getters that start operations, over '${kind.name}'`, () => {
    const { pair } = usePairs(kind);

    it.each(Object.keys(CASES))('leave %s as it was described', async (name) => {
      const both = await pair(kind);
      await serving(both, async () => {
        const other = new Interloper(both);
        const [actual, expected] = await CASES[name]!(both, other);
        expect(actual).toEqual(expected);
        expect(other.sent).toBeGreaterThan(0);
        await other.receive();
      });
    });
  });
}
