/** Tag matching compared with the simplest model, two lists that are searched from the front: the matcher alone, and whole workers. */

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Request, Status } from '../../src/index.ts';
import type { ReceiveRequest as MatchedRequest } from '../../src/ucp/base/request/operation-requests.ts';
import { CreditBudget, InboundWindow } from '../../src/ucp/credit/credit.ts';
import { TagMatcher, UnexpectedMessage } from '../../src/ucp/tag/matching.ts';
import { catches } from '../fixtures/catches.ts';
import { connectionKind, driveIdle, type Pair, usePairs } from '../fixtures/pair.ts';

/** Few tags, so that they match often; words with the top bit set among them. */
const TAGS = [0n, 1n, 2n, 0x8000_0000n, 0xffff_ffffn, 1n << 32n, (1n << 63n) | 1n, 0xffff_ffff_ffff_ffffn];
const MASKS = [...TAGS, 0xffff_ffff_ffff_ffffn, 0xffff_ffff_ffff_ffffn, 0xffff_ffff_0000_0000n];
const tagArbitrary = fc.constantFrom(...TAGS);
const maskArbitrary = fc.constantFrom(...MASKS);

type Step =
  | { readonly do: 'post'; readonly tag: bigint; readonly mask: bigint }
  | { readonly do: 'arrive' | 'probe' | 'take'; readonly tag: bigint; readonly mask: bigint }
  | { readonly do: 'cancel'; readonly at: number };

const stepArbitrary: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('post' as const), tag: tagArbitrary, mask: maskArbitrary }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('arrive' as const), tag: tagArbitrary, mask: maskArbitrary }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('probe' as const), tag: tagArbitrary, mask: maskArbitrary }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('take' as const), tag: tagArbitrary, mask: maskArbitrary }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('cancel' as const), at: fc.nat(50) }) },
);

interface Posted {
  readonly id: number;
  readonly tag: bigint;
  readonly mask: bigint;
}

/** The model of tag matching. */
class Model {
  readonly posted: Posted[] = [];
  readonly arrived: Posted[] = [];

  /** The id of the message that a new receive matches. */
  post(receive: Posted): number | undefined {
    const message = this.find(receive.tag, receive.mask, true);
    if (message === undefined) this.posted.push(receive);
    return message;
  }

  /** The id of the receive that a new message matches. */
  arrive(message: Posted): number | undefined {
    const at = this.posted.findIndex(({ tag, mask }) => (tag & mask) === (message.tag & mask));
    if (at < 0) this.arrived.push(message);
    return at < 0 ? undefined : this.posted.splice(at, 1)[0]!.id;
  }

  find(tag: bigint, mask: bigint, take: boolean): number | undefined {
    const at = this.arrived.findIndex((message) => (message.tag & mask) === (tag & mask));
    if (at < 0) return undefined;
    return (take ? this.arrived.splice(at, 1)[0]! : this.arrived[at]!).id;
  }

  cancel(at: number): number | undefined {
    return this.posted.splice(at % Math.max(1, this.posted.length), 1)[0]?.id;
  }
}

const low = (tag: bigint): number => Number(BigInt.asIntN(32, tag));
const high = (tag: bigint): number => Number(BigInt.asIntN(32, tag >> 32n));

/** The fields of a request that matching uses. */
interface Receive {
  readonly id: number;
  readonly tagLow: number;
  readonly tagHigh: number;
  readonly maskLow: number;
  readonly maskHigh: number;
  order: number;
}

const WINDOW = new InboundWindow(new CreditBudget(0), () => false);

describe('TagMatcher', () => {
  async function check(Matcher: new () => TagMatcher<number>): Promise<void> {
    await fc.assert(
      fc.asyncProperty(fc.array(stepArbitrary, { maxLength: 400 }), async (steps) => {
        const model = new Model();
        const matcher = new Matcher();
        const receives = new Map<number, Receive>();
        for (const [id, step] of steps.entries()) {
          if (step.do === 'cancel') {
            const cancelled = model.cancel(step.at);
            if (cancelled === undefined) continue;
            const receive = receives.get(cancelled)! as unknown as MatchedRequest;
            expect([matcher.cancel(receive), matcher.cancel(receive)]).toEqual([true, false]);
            continue;
          }
          const { tag, mask } = step;
          const words = [low(tag), high(tag), low(mask), high(mask)] as const;
          if (step.do === 'post') {
            const message = matcher.peek(...words);
            if (message !== undefined) matcher.remove(message);
            expect(message?.content).toBe(model.post({ id, tag, mask }));
            if (message !== undefined) continue;
            const [tagLow, tagHigh, maskLow, maskHigh] = words;
            const receive: Receive = { id, tagLow, tagHigh, maskLow, maskHigh, order: 0 };
            receives.set(id, receive);
            matcher.post(receive as unknown as MatchedRequest);
          } else if (step.do === 'arrive') {
            const receive = matcher.expected(words[0], words[1]) as unknown as Receive | undefined;
            if (receive === undefined) {
              const [tagLow, tagHigh] = words;
              const account = { byteLength: 0, heldBytes: 0, window: WINDOW, cost: 0 };
              matcher.keep(new UnexpectedMessage({ tagLow, tagHigh, content: id, ...account }));
            }
            expect(receive?.id).toBe(model.arrive({ id, tag, mask }));
          } else {
            const message = matcher.peek(...words);
            if (step.do === 'take' && message !== undefined) matcher.remove(message);
            expect(message?.content).toBe(model.find(tag, mask, step.do === 'take'));
          }
          expect([matcher.posted, matcher.waiting]).toEqual([model.posted.length, model.arrived.length]);
        }
        const { receives: left, messages } = matcher.drain();
        const ids = left.map((receive) => (receive as unknown as Receive).id).sort((a, b) => a - b);
        expect(ids).toEqual(model.posted.map(({ id }) => id).sort((a, b) => a - b));
        expect(messages.map(({ content }) => content)).toEqual(model.arrived.map(({ id }) => id));
        expect([matcher.posted, matcher.waiting]).toEqual([0, 0]);
      }),
      { numRuns: 1000 },
    );
  }

  it('matches like two lists', () => check(TagMatcher));

  it('is noticed if it ignores masks, or does not cancel receives', async () => {
    class WithoutMasks extends TagMatcher<number> {
      override peek(tagLow: number, tagHigh: number): ReturnType<TagMatcher<number>['peek']> {
        return super.peek(tagLow, tagHigh, -1, -1);
      }
    }
    class Forgetful extends TagMatcher<number> {
      override cancel(): boolean {
        return true;
      }
    }
    await catches(check, WithoutMasks, /Property failed/);
    await catches(check, Forgetful, /Property failed/);
  });

  it('reuses requests as the pool does', () => {
    const matcher = new TagMatcher();
    const receive = { tagLow: 1, tagHigh: 0, maskLow: -1, maskHigh: -1, order: 0 } as unknown as MatchedRequest;
    const first = { tagLow: 1, tagHigh: 0, maskLow: -1, maskHigh: -1, order: 0 } as unknown as MatchedRequest;
    matcher.post(first);
    matcher.post(receive);
    expect(matcher.cancel(receive)).toBe(true);
    // The same object is another receive now, after a third one.
    const third = { tagLow: 1, tagHigh: 0, maskLow: -1, maskHigh: -1, order: 0 } as unknown as MatchedRequest;
    matcher.post(third);
    matcher.post(receive);
    expect([1, 2, 3, 4].map(() => matcher.expected(1, 0))).toEqual([first, third, receive, undefined]);
  });
});

describe('tag matching between two workers', () => {
  const fixture = usePairs();

  it.each(['posix', 'all transports'])('does what two lists do, over %s', async (name) => {
    const pair = await fixture.pair(connectionKind(name));
    await fc.assert(
      fc.asyncProperty(fc.array(stepArbitrary, { maxLength: 120 }), async (steps) => {
        await replay(pair, steps);
      }),
      { numRuns: 80, interruptAfterTimeLimit: 3000 },
    );
  });

  it.each(['posix', 'all transports'])('is noticed if a sender changes tags, over %s', async (name) => {
    const pair = await fixture.pair(connectionKind(name));
    const ab = {
      tagSendNbx: (...[bytes, from, length, , params]) => pair.ab.tagSendNbx(bytes, from, length, 7n, params),
    } as Pair['ab'];
    const steps: Step[] = [
      { do: 'post', tag: 1n, mask: 0xffff_ffff_ffff_ffffn },
      { do: 'arrive', tag: 1n, mask: 0n },
    ];
    await catches((broken: Pair) => replay(broken, steps), { ...pair, ab }, /deeply equal/);
    await drain(pair);
  });
});

/** Runs steps with real messages, whose bytes are their id; long ones are sent by rendezvous. */
async function replay(pair: Pair, steps: readonly Step[]): Promise<void> {
  const { one, two, ab } = pair;
  const model = new Model();
  const expected = new Map<number, number>();
  const got = new Map<number, number>();
  const posted = new Map<number, Request>();
  const wrong: string[] = [];
  const callback = (request: Request, status: Status): void => {
    const [id, target] = request.userData as [number, Uint32Array];
    posted.delete(id);
    if (status === Status.OK) got.set(id, target[0]!);
    else if (status !== Status.CANCELED) wrong.push(`receive ${id}: ${status}`);
    request.free();
  };
  const receive = (id: number, tag: bigint, mask: bigint): void => {
    const target = new Uint32Array(5000);
    const bytes = new Uint8Array(target.buffer);
    const params = { callback, userData: [id, target], noImmediateCompletion: true };
    const result = two.worker.tagRecvNbx(bytes, 0, bytes.byteLength, tag, mask, params);
    if (typeof result !== 'number') posted.set(id, result);
    else if (result !== Status.OK) wrong.push(`receive ${id}: ${result}`);
  };
  const free = { callback: (request: Request): void => request.free() };
  for (const [id, step] of steps.entries()) {
    if (step.do === 'cancel') {
      const cancelled = model.cancel(step.at);
      if (cancelled !== undefined && !posted.get(cancelled)!.cancel()) wrong.push(`cancel ${cancelled}`);
    } else if (step.do === 'post') {
      const message = model.post({ id, tag: step.tag, mask: step.mask });
      if (message !== undefined) expected.set(id, message);
      receive(id, step.tag, step.mask);
    } else if (step.do === 'arrive') {
      const met = model.arrive({ id, tag: step.tag, mask: step.mask });
      if (met !== undefined) expected.set(met, id);
      const bytes = new Uint8Array(new Uint32Array([1, 20, 2200, 5000][id % 4]!).fill(id).buffer);
      ab.tagSendNbx(bytes, 0, bytes.byteLength, step.tag, free);
      await driveIdle(pair, 8);
    } else {
      const found = model.find(step.tag, step.mask, false);
      if ((two.worker.tagProbe(step.tag, step.mask) === undefined) !== (found === undefined)) wrong.push(`probe ${id}`);
    }
  }
  await driveIdle(pair, 30);
  expect([wrong, [...got].sort(byId), posted.size]).toEqual([[], [...expected].sort(byId), model.posted.length]);
  // Cancels remaining receives before the next run.
  for (const request of [...posted.values()]) request.cancel();
  for (let id = steps.length; model.find(0n, 0n, true) !== undefined; id++) receive(id, 0n, 0n);
  await driveIdle(pair, 30);
  expect([one.worker.requestsInUse, two.worker.requestsInUse, wrong]).toEqual([0, 0, []]);
}

/** Receives all messages that are left. */
async function drain(pair: Pair): Promise<void> {
  while (pair.two.worker.tagProbe(0n, 0n) !== undefined)
    await pair.two.worker.tagRecv(new Uint8Array(20_000), { tag: 0n, mask: 0n });
  await driveIdle(pair, 30);
}

const byId = ([left]: readonly [number, number], [right]: readonly [number, number]): number => left - right;
