/** Over libucp, UCX_LOG_LEVEL=data: a line for each operation and each active message at either end; none at the level above. */

import { expect, it } from 'vitest';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const { skipReason } = installedLibucp();
const contexts = useContexts();

/** The trace of two tagged messages, of 10 and 80,000 bytes, and of an active message. */
async function traceAt(level: string): Promise<string[]> {
  const lines: string[] = [];
  const { worker, endpoint } = await contexts.open({
    context: {
      engine: 'libucx',
      config: { LOG_LEVEL: level, TLS: 'tcp,self' },
      logSink: (_level, _component, message) => {
        if (/^[TR]X: /.test(message)) lines.push(message);
      },
    },
  });
  for (const bytes of [10, 80_000]) {
    await Promise.all([
      endpoint.tagSend(new Uint8Array(bytes), { tag: 5 }),
      worker.tagRecv(new Uint8Array(bytes), { tag: 5 }),
    ]);
  }
  const received = new Promise<void>((resolve) => worker.setAmHandler(5, () => resolve()));
  const stop = new AbortController();
  const served = worker.serve(stop.signal);
  await Promise.all([endpoint.amSend(5, new Uint8Array(30)), received]);
  stop.abort();
  await served;
  return lines;
}

it.skipIf(skipReason !== undefined)('traces operations and messages (needs libucp)', async () => {
  const lines = await traceAt('data');
  for (const bytes of [10, 80_000]) {
    expect(lines).toContain(`TX: tag/libucp [length ${bytes}] OK`);
    expect(lines).toContain(`RX: tag/libucp [length ${bytes}] OK`);
  }
  expect(lines).toContain('TX: am/libucp [length 30] OK');
  expect(lines).toContain('RX: am/libucp');
  expect(await traceAt('trace')).toEqual([]);
});
