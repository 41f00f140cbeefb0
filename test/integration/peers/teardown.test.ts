/** The end of operations: failures are reported to their own operation, closing waits for awaited operations, and each operation ends once. */

import { describe, expect, it } from 'vitest';
import { type Request, Status } from '../../../src/index.ts';
import { device, rkeyOf, useContexts } from '../../fixtures/contexts.ts';
import { useExclusions } from '../../fixtures/messages/exclusions.ts';
import { ENGINES } from '../../fixtures/pair.ts';

const BYTES = 8 * 2 ** 20;

describe.each(ENGINES)('over %s', (engine) => {
  const fixture = useContexts(engine);
  useExclusions();

  describe('failed short puts', () => {
    it('fail every promise that awaits one', async () => {
      fixture.allow(/device_reset/);
      const stack = await fixture.open();
      const rkey = rkeyOf(stack, device(stack, 4096));
      await stack.endpoint.put(new Uint8Array(8), rkey);
      for (let i = 0; i < 40; i++) stack.node.inject(0, { kind: 'hang' });
      const puts = Array.from({ length: 6 }, (_, i) =>
        stack.endpoint.put(new Uint8Array(8).fill(i), rkey, { remoteOffset: i * 8 }),
      );
      const settled = Promise.allSettled(puts);
      stack.node.inject(0, { kind: 'hard-reset' });
      for (const result of await settled) {
        expect(result).toMatchObject({ status: 'rejected', reason: { code: 'ERR_IO_ERROR' } });
      }
    });

    it('are reported by their requests, or else by the next flush, also while another card is busy', async () => {
      fixture.allow(/device_reset/);
      const stack = await fixture.open();
      const failing = rkeyOf(stack, device(stack, 4096, 1));
      const busy = rkeyOf(stack, device(stack, 65536, 0));
      await stack.endpoint.put(new Uint8Array(8), failing);
      stack.node.inject(1, { kind: 'hang' });
      const failed = stack.endpoint.putNbx(new Uint8Array(8), 0, 8, failing, 0);
      if (engine === 'native') expect(failed).toBe(Status.OK);
      stack.node.inject(1, { kind: 'hard-reset' });
      for (let i = 0; i < 1000; i++) stack.worker.progress();
      const put = stack.endpoint.putNbx(new Uint8Array(65536), 0, 65536, busy, 0) as Request;
      const flush = stack.endpoint.flushNbx();
      const statusOf = (ended: Status | Request): Status => {
        if (typeof ended === 'number') return ended;
        while (!ended.isCompleted) stack.worker.progress();
        const { status } = ended;
        ended.free();
        return status;
      };
      // The failure of a put without a request is reported by the flush only.
      const flushed = statusOf(flush);
      expect(typeof failed === 'number' ? flushed : statusOf(failed)).toBe(Status.IO_ERROR);
      expect(statusOf(put)).toBe(Status.OK);
    });
  });

  describe('closing', () => {
    it('a worker or a context completes awaited puts', async () => {
      for (const close of ['worker', 'context'] as const) {
        const stack = await fixture.open({ node: { dmaThreads: 1 } });
        const rkey = rkeyOf(stack, device(stack, BYTES));
        const put = stack.endpoint.put(new Uint8Array(BYTES).fill(1), rkey);
        const outcome = put.catch(({ code }: { code: string }) => code);
        await stack[close].close();
        const ended = await outcome;
        // Operations that were not passed to libucp yet are cancelled.
        if (engine === 'libucx' && ended === 'ERR_CANCELED') continue;
        expect(ended).toMatchObject({ byteLength: BYTES, ...(engine === 'native' ? { protocol: 'put/zcopy' } : {}) });
      }
    });
  });

  describe('memory of one buffer in two operations', () => {
    it('is released by one of them without affecting the other', async () => {
      const stack = await fixture.open({ node: { dmaThreads: 1 } });
      const rkey = rkeyOf(stack, device(stack, 2 ** 20));
      const bytes = new Uint8Array(2 ** 20);
      const handle = stack.context.memMap({ buffer: bytes });
      const get = stack.endpoint.get(bytes, rkey, { byteLength: 8192 });
      const puts = [0, 1, 2, 3].map(() => stack.endpoint.put(handle, rkey));
      try {
        stack.context.memUnmap(handle);
      } catch (error) {
        expect(error).toMatchObject({ status: Status.BUSY });
      }
      await Promise.all([get, ...puts]);
      expect(stack.worker.requestsInUse).toBe(0);
    });
  });
});
