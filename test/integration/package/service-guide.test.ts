/** docs/guide/service.md: its programs run, and it shows lines of them only. Bundling: bundling.test.ts. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Span, SpanStatusCode, type Tracer } from '@opentelemetry/api';
import { afterEach, describe, expect, it } from 'vitest';
import { traceOperations } from '../../../examples/service/spans.ts';
import { StoreClient } from '../../../examples/service/store-client.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { ENGINES } from '../../fixtures/pair.ts';
import { Started } from '../../fixtures/processes/started.ts';
import { built, ROOT } from '../../fixtures/tools/built.ts';
import { withoutSettings } from '../../fixtures/tools/command-line.ts';
import { SEGMENT_PROBES } from '../../fixtures/transports/own-segments.ts';

const FOLDER = join(ROOT, 'examples/service');
const FILES = readdirSync(FOLDER);
const BLOCK_BYTES = 65_536;
const WAIT_MS = 20_000;

describe('the page', () => {
  const page = readFileSync(join(ROOT, 'docs/guide/service.md'), 'utf8');
  const linesOf = (text: string): string[] => text.split('\n').map((line) => line.trim());

  it('links to every program, and shows lines of them only', () => {
    for (const file of FILES) expect(page).toContain(`(../../examples/service/${file})`);
    const programs = new Set(FILES.flatMap((file) => linesOf(readFileSync(join(FOLDER, file), 'utf8'))));
    const shown = [...page.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].flatMap(([, block]) => linesOf(block!));
    expect(shown.length).toBeGreaterThan(20);
    expect(shown.filter((line) => !programs.has(line) && line !== '')).toEqual([]);
  });
});

describe('the programs', { timeout: 60_000 }, () => {
  expectNoLeaks(SEGMENT_PROBES);
  const fixture = useContexts();
  const programs: Started[] = [];
  let engine: (typeof ENGINES)[number] = 'native';
  afterEach(async () => {
    for (const { child } of programs) child.kill('SIGKILL');
    for (const { ended } of programs.splice(0)) await ended;
    engine = 'native';
  });

  function start(file: string, ...args: readonly string[]): Started {
    const env = { ...withoutSettings(), UCX_GAUDI_DRIVER: 'emulator', UCX_ENGINE: engine, UCX_TCP_CM_REUSEADDR: 'y' };
    const started = new Started(built(join(FOLDER, file)), args, { env });
    programs.push(started);
    return started;
  }

  /** Starts the store. @returns it, and its port */
  async function startStore(atPort = '0'): Promise<readonly [Started, string]> {
    const store = start('store-server.ts', atPort);
    const [, port] = await store.saw(/ready at port (\d+)/);
    return [store, port!];
  }

  async function startService(storePort: string): Promise<readonly [Started, string]> {
    const service = start('http-service.ts', storePort);
    const [, url] = await service.saw(/at (http:\S+)\n.*at http/);
    return [service, url!];
  }

  const bytesOf = (seed: number): Buffer =>
    Buffer.from(Uint8Array.from({ length: BLOCK_BYTES }, (_, index) => (index * 7 + (index >> 8) + seed) & 0xff));

  /** A client in this process. */
  async function clientOf(port: string): Promise<StoreClient> {
    const { worker } = await fixture.open({ context: { engine, config: { TLS: 'self,posix,cma,tcp' } } });
    return new StoreClient(worker, Number(port));
  }

  it.each([
    ['threads.ts', '3 threads, and every byte is theirs'],
    ['back-pressure.ts', '1000 messages arrived, in order'],
  ])('%s prints: %s', async (file, last) => {
    const program = start(file);
    expect(await program.ended).toBe(0);
    expect(program.printed.trimEnd().split('\n').at(-1)).toBe(last);
  });

  const ends = ENGINES.flatMap((each) => [[each, 'SIGKILL'] as const, [each, 'SIGTERM'] as const]);
  it.each(ends)('of the store over %s are found again after %s', async (each, signal) => {
    engine = each;
    const [store, port] = await startStore();
    const client = await clientOf(port);
    const target = new Uint8Array(BLOCK_BYTES);
    await client.write(5, bytesOf(1), AbortSignal.timeout(WAIT_MS));
    await client.read(5, target, AbortSignal.timeout(WAIT_MS));
    expect(Buffer.compare(target, bytesOf(1))).toBe(0);
    store.child.kill(signal);
    expect(await store.ended).toBe(signal === 'SIGTERM' ? 0 : null);
    // Before the new one runs: the call waits for it.
    await Promise.all([client.write(9, bytesOf(2), AbortSignal.timeout(WAIT_MS)), startStore(port)]);
    await client.read(9, target, AbortSignal.timeout(WAIT_MS));
    expect(Buffer.compare(target, bytesOf(2))).toBe(0);
  });

  it('end a call at its time-out if no store comes back', async () => {
    const [store, port] = await startStore();
    const client = await clientOf(port);
    await client.write(0, bytesOf(1), AbortSignal.timeout(WAIT_MS));
    store.child.kill('SIGKILL');
    await store.ended;
    await expect(client.write(0, bytesOf(2), AbortSignal.timeout(300))).rejects.toMatchObject({ name: 'TimeoutError' });
  });

  it('serve HTTP by two processes, with statuses for what fails, until SIGTERM', async () => {
    const [store, storePort] = await startStore();
    const [service, url] = await startService(storePort);
    const put = (block: number, body: Buffer): Promise<Response> =>
      fetch(`${url}/blocks/${block}`, {
        method: 'PUT',
        headers: { 'content-type': 'application/octet-stream', connection: 'close' },
        body: new Uint8Array(body),
      });
    const statuses = await Promise.all(Array.from({ length: 8 }, (_, block) => put(block, bytesOf(block))));
    expect(statuses.map(({ status }) => status)).toEqual(Array.from({ length: 8 }, () => 204));
    for (let block = 0; block < statuses.length; block++) {
      const read = await fetch(`${url}/blocks/${block}`, { headers: { connection: 'close' } });
      expect(Buffer.compare(Buffer.from(await read.arrayBuffer()), bytesOf(block))).toBe(0);
    }
    expect((await put(99, bytesOf(0))).status).toBe(400);
    expect((await put(0, Buffer.alloc(BLOCK_BYTES + 1))).status).toBe(413);

    // Without a store requests hold their bytes until the time-out, up to the limit of each process.
    store.child.kill('SIGKILL');
    await store.ended;
    const late = await Promise.all(Array.from({ length: 40 }, () => put(0, bytesOf(1))));
    const counted = new Set(late.map(({ status }) => status));
    expect([...counted].sort()).toEqual([503, 504]);
    expect(late.filter(({ status }) => status === 504).length).toBeLessThanOrEqual(32);

    service.child.kill('SIGTERM');
    expect(await service.ended).toBe(0);
    await expect(fetch(url)).rejects.toThrow('fetch failed');
  });

  it('trace every operation', async () => {
    const [, port] = await startStore();
    const spans: { name: string; bytes: unknown; status: number; ms: number }[] = [];
    const tracer = {
      startSpan: (name, options) => {
        const span = { name, bytes: options?.attributes?.['ucx.bytes'], status: SpanStatusCode.UNSET as number, ms: 0 };
        spans.push(span);
        return {
          setStatus: ({ code }) => {
            span.status = code;
          },
          end: (time) => {
            span.ms = Number(time) - Number(options?.startTime);
          },
        } as Pick<Span, 'setStatus' | 'end'> as Span;
      },
    } as Pick<Tracer, 'startSpan'> as Tracer;
    const stop = traceOperations(tracer);
    const client = await clientOf(port);
    await client.write(0, bytesOf(1), AbortSignal.timeout(WAIT_MS));
    const { worker } = await fixture.open();
    await expect(worker.tagRecv(new Uint8Array(1), { signal: AbortSignal.timeout(1) })).rejects.toThrow('timed out');
    stop();
    const put = spans.find(({ name }) => name.startsWith('ucx put'));
    expect(put).toMatchObject({ bytes: BLOCK_BYTES, status: SpanStatusCode.UNSET });
    expect(put!.ms).toBeGreaterThanOrEqual(0);
    expect(spans.map(({ name }) => name)).toContain('ucx flush');
    expect(spans.filter(({ status }) => status === SpanStatusCode.ERROR).map(({ name }) => name)).toEqual([
      expect.stringMatching(/^ucx tag\/recv/),
    ]);
    const { length } = spans;
    await client.write(0, bytesOf(2), AbortSignal.timeout(WAIT_MS));
    expect(spans).toHaveLength(length);
  });
});
