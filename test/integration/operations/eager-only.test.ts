/** UCX_RNDV_THRESH=inf: every tagged message that fits into a frame is sent at once, also from memory that the peer could read, and longer ones are offered. */

import { expect, it } from 'vitest';
import { connectionKind, expectSame, keyFor, pattern, serving, usePairs } from '../../fixtures/pair.ts';

const { pair } = usePairs();
const LONG = 3 * 2 ** 20;

it.each([
  ['inf', 40_000, 'eager'],
  ['intra:inf', 40_000, 'eager'],
  ['1k,intra:inf', 40_000, 'eager'],
  ['inf,intra:auto', 40_000, 'rndv'],
  ['auto', 40_000, 'rndv'],
  ['inf', LONG, 'rndv'],
])('UCX_RNDV_THRESH=%s: %i bytes of mapped memory go by %s', async (UCX_RNDV_THRESH, byteLength, protocol) => {
  const both = await pair(connectionKind('posix'), { UCX_RNDV_THRESH });
  const memory = both.one.context.memMap({ allocate: byteLength });
  const bytes = pattern(byteLength, 1);
  memory.bytes!.set(bytes);
  const target = new Uint8Array(byteLength);
  const [result] = await serving(both, () =>
    Promise.all([both.ab.tagSend(memory, { tag: 1 }), both.two.worker.tagRecv(target, { tag: 1 })]),
  );
  expectSame(target, bytes);
  expect(result.protocol).toContain(`tag/${protocol}`);
  const key = keyFor(both.ab, both.two, both.two.context.memMap({ allocate: byteLength }));
  const explained = both.ab.explain('tag', memory, key).chosen.find(({ bytesMax }) => bytesMax >= byteLength);
  expect(explained!.protocol).toBe(result.protocol);
});
