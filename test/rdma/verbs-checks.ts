/** Checks of the binding to libibverbs between two devices. */

import assert from 'node:assert/strict';
import { memfdCreate } from '../../src/sys/index.ts';
import { WcStatus, WrOpcode } from '../../src/verbs/abi.ts';
import { fillPattern } from '../fixtures/pattern.ts';
import { check, completion, DEVICES, verbs, withEnds } from './guest.ts';

/** Runs them. */
export async function verbsChecks(): Promise<void> {
  await check('libibverbs lists both devices', () => {
    assert.deepEqual(
      verbs
        .devices()
        .map(({ name }) => name)
        .sort(),
      [...DEVICES],
    );
  });

  await check('writes and reads move the bytes', () =>
    withEnds(async (near, far) => {
      fillPattern(near.memory.u8.subarray(0, 20_000), 3);
      assert.equal(near.write(1, 0, 20_000, far, 4096), 0);
      assert.deepEqual([(await completion(near)).status], [WcStatus.SUCCESS]);
      assert.deepEqual(far.memory.u8.slice(4096, 24_096), near.memory.u8.slice(0, 20_000));
      fillPattern(far.memory.u8.subarray(0, 3000), 9);
      assert.equal(near.read(2, 30_000, 3000, far, 0), 0);
      assert.deepEqual([(await completion(near)).status], [WcStatus.SUCCESS]);
      assert.deepEqual(near.memory.u8.slice(30_000, 33_000), far.memory.u8.slice(0, 3000));
    }),
  );

  await check('messages arrive with their immediate data, also inline', () =>
    withEnds(async (near, far) => {
      fillPattern(near.memory.u8.subarray(0, 500), 5);
      assert.equal(far.receive(7, 1000, 4096), 0);
      assert.equal(near.send(1, 0, 500, 0x1234), 0);
      const { status, byteLength, id } = await completion(far);
      assert.deepEqual([status, byteLength, id], [WcStatus.SUCCESS, 500, 7]);
      assert.equal((await completion(near)).status, WcStatus.SUCCESS);
      assert.deepEqual(far.memory.u8.slice(1000, 1500), near.memory.u8.slice(0, 500));
      assert.equal(far.receive(8, 0, 64), 0);
      assert.equal(near.inline(2, Uint8Array.of(1, 2, 3)), 0);
      assert.equal((await completion(far)).byteLength, 3);
      assert.deepEqual([...far.memory.u8.slice(0, 3)], [1, 2, 3]);
    }),
  );

  await check('atomic operations of 64 bits return the word before', () =>
    withEnds(async (near, far) => {
      const word = new DataView(far.memory.buffer, 0, 8);
      word.setBigUint64(0, 40n, true);
      assert.equal(near.atomic(WrOpcode.ATOMIC_FETCH_AND_ADD, 1, 64, far, 0, [2n, 0n]), 0);
      assert.equal((await completion(near)).status, WcStatus.SUCCESS);
      assert.equal(word.getBigUint64(0, true), 42n);
      assert.equal(new DataView(near.memory.buffer, 64, 8).getBigUint64(0, true), 40n);
      assert.equal(near.atomic(WrOpcode.ATOMIC_CMP_AND_SWP, 2, 64, far, 0, [42n, 7n]), 0);
      assert.equal((await completion(near)).status, WcStatus.SUCCESS);
      assert.equal(word.getBigUint64(0, true), 7n);
    }),
  );

  await check('a write outside the region fails with a remote access error', () =>
    withEnds(async (near, far) => {
      assert.equal(near.write(1, 0, 64, far, 10_000_000), 0);
      assert.equal((await completion(near)).status, WcStatus.REM_ACCESS_ERR);
    }),
  );

  await check('rxe refuses dma-bufs', () => {
    const context = verbs.open('rxe0');
    const pd = context.allocPd();
    const fd = memfdCreate('not-a-dmabuf');
    try {
      assert.throws(() => pd.regDmabufMr(fd, 0, 4096, 0, 1), /ibv_reg_dmabuf_mr/);
    } finally {
      pd.close();
      context.close();
    }
  });
}
