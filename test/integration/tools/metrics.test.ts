/** Metrics: those of a context in a registry of prom-client, and the exporter of all processes and cards; their text as Debian's promtool reads it. */

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Gauge, Registry } from 'prom-client';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { METRICS, metricFamilies } from '../../../src/api/snapshot/metrics.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { Child } from '../../fixtures/processes/child.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import type { InspectedAnswer, InspectedRequest } from '../../fixtures/programs/inspected-program.ts';
import { MAIN } from '../../fixtures/tools/command-line.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const PROMTOOL = spawnSync('promtool', ['--version']).error === undefined;
/** What promtool says of the name that operators of Gaudi know. */
const KNOWN_NAME = "habanalabs_power_mW metric names should be written in 'snake_case' not 'camelCase'";

/** The value of a line of the text. */
function metricValue(text: string, name: string, labels: Readonly<Record<string, string>> = {}): number {
  const lines = text.split('\n').filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
  const found = lines.filter((line) =>
    Object.entries(labels).every(([key, value]) => line.includes(`${key}="${value}"`)),
  );
  return found.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

describe('metrics', () => {
  const fixture = useContexts('native');

  it('have the age of the oldest request of all workers', async () => {
    const { context } = await fixture.open();
    const { workers, ...rest } = context.snapshot();
    const withAge = (oldestMs: number) => {
      const group = { protocol: 'put', reason: 'peer', count: 1, byteLength: 8, oldestMs } as const;
      return { ...workers[0]!, requests: { ...workers[0]!.requests, groups: [group] } };
    };
    const snapshot = { ...rest, workers: [withAge(3000), withAge(5000), withAge(4000)] };
    const families = metricFamilies([{ snapshot, labels: {} }], []);
    const valuesOf = (family: string) => families.find(({ name }) => name === family)!.values.map(({ value }) => value);
    expect(valuesOf('ucx_requests_oldest_seconds')).toEqual([5]);
    expect(valuesOf('ucx_requests_pending')).toEqual([3]);
  });

  it('are added to a registry completely or not at all, and again after it was cleared', async () => {
    const { context } = await fixture.open();
    const registry = new Registry();
    const taken = new Gauge({ name: 'ucx_mapped_bytes', help: 'of the program', registers: [registry] });
    expect(() => context.metrics(registry)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
    expect(registry.getMetricsAsArray()).toEqual([taken]);
    registry.clear();
    for (let round = 0; round < 2; round++) {
      context.metrics(registry);
      expect(await registry.metrics()).toMatch(/^ucx_context_info\{/m);
      registry.clear();
    }
  });
});

describe.each([
  ['native', true],
  ['libucx', installedLibucp().libucp !== undefined],
] as const)('metrics of contexts over the engine %s', (engine, isThere) => {
  const fixture = useContexts(engine);

  it.skipIf(!isThere)(
    'count what has been done, for every context of the registry, until it closes (needs libucp)',
    async () => {
      const registry = new Registry();
      const stack = await fixture.open();
      const other = await fixture.openOn(stack.node, { config: { ACC_DEVICES: '^gaudi*' } });
      for (const { context } of [stack, other]) context.metrics(registry);
      stack.context.metrics(registry);
      const memory = stack.context.memMap({ allocate: 1 << 20, memoryType: 'gaudi' });
      const rkey = stack.endpoint.unpackRkey(stack.context.packRkey(memory));
      const before = await registry.metrics();
      for (let i = 0; i < 5; i++) await stack.endpoint.put(new Uint8Array(1 << 20), rkey);
      const after = await registry.metrics();
      const added = (name: string, labels: Readonly<Record<string, string>>): number =>
        metricValue(after, name, labels) - metricValue(before, name, labels);
      expect(added('ucx_operations_total', { context: '1', transport: 'gaudi_cpy', operation: 'put' })).toBe(5);
      expect(added('ucx_bytes_total', { context: '1', transport: 'gaudi_cpy' })).toBe(5 << 20);
      expect(added('ucx_dma_bytes_total', { context: '1', direction: 'host_to_device' })).toBe(5 << 20);
      expect(added('ucx_operations_total', { context: '2', operation: 'put' })).toBe(0);
      const duration = 'ucx_operation_duration_seconds';
      expect(added(`${duration}_count`, { protocol: 'put/zcopy', transport: 'gaudi_cpy', size: '<=4M' })).toBe(5);
      expect(added(`${duration}_bucket`, { protocol: 'put/zcopy', transport: 'gaudi_cpy', le: '+Inf' })).toBe(5);
      expect(added(`${duration}_sum`, { protocol: 'put/zcopy' })).toBeGreaterThan(0);
      // They are those of the thread.
      expect(after).not.toMatch(new RegExp(`^${duration}_\\w+\\{[^}]*context=`, 'm'));
      expect(metricValue(after, 'ucx_mapped_bytes', { context: '1', memory_type: 'gaudi' })).toBe(memory.byteLength);
      expect(after.match(/^ucx_context_info\{/gm)).toHaveLength(2);
      const failures = async (context: string): Promise<number> =>
        metricValue(await registry.metrics(), 'ucx_operation_failures_total', { context });
      expect([await failures('1'), await failures('2')]).toEqual([0, 0]);
      const tag = 1;
      const received = stack.worker.tagRecv(new Uint8Array(8), { tag });
      await Promise.all([stack.endpoint.tagSend(new Uint8Array(16), { tag }), expect(received).rejects.toThrow()]);
      expect([await failures('1'), await failures('2')]).toEqual([1, 0]);
      rkey.release();
      await fixture.close();
      const last = await registry.metrics();
      expect(last).not.toMatch(/^ucx_context_info\{/m);
      for (const name of Object.keys(METRICS)) expect(last).toContain(`# TYPE ${name} `);
    },
  );

  it.skipIf(!isThere)('are refused for what is not a registry, and of a closed context (needs libucp)', async () => {
    const { context } = await fixture.open();
    expect(() => context.metrics({} as Registry)).toThrow(/argument registry/);
    await context.close();
    expect(() => context.metrics(new Registry())).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
  });
});

describe('the exporter', () => {
  let runtimeDirectory: string;
  const ends: (() => Promise<unknown>)[] = [];
  beforeEach(() => {
    runtimeDirectory = mkdtempSync(join(tmpdir(), 'gaudi-ucx-metrics-'));
  });
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
    rmSync(runtimeDirectory, { recursive: true });
  });

  it.skipIf(!PROMTOOL)(
    'serves all processes and the cards, also while processes die (needs promtool)',
    { timeout: 60_000 },
    async () => {
      const server = await TestNodeServer.start({ cards: 2 });
      ends.push(() => server.stop());
      const env = environment({ XDG_RUNTIME_DIR: runtimeDirectory, UCX_GAUDI_DRIVER: `emulator:${server.socketPath}` });
      const program = async (card: string): Promise<Child<InspectedRequest, InspectedAnswer>> => {
        const settings = { ...env, UCX_ACC_DEVICES: card, UCX_STATS_LATENCY: 'y' };
        const child = new Child<InspectedRequest, InspectedAnswer>('test/fixtures/programs/inspected-program.ts', [], {
          env: settings,
        });
        ends.push(() => child.kill());
        await child.next();
        await child.ask({ do: 'work' });
        return child;
      };
      const [one, two] = await Promise.all([program('gaudi0'), program('gaudi1')]);
      const exporter = spawn(process.execPath, [MAIN, 'metrics', '--port', '0'], {
        env,
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      ends.push(async () => {
        exporter.kill();
        if (exporter.exitCode === null) await once(exporter, 'exit');
      });
      const [url] = (await once(exporter.stdout, 'data')) as [Buffer];
      const at = url.toString().trim();
      expect(at).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/metrics$/);
      const text = await (await fetch(at)).text();
      for (const { pid } of [one, two]) {
        const labels = { pid: String(pid), transport: 'gaudi_cpy', operation: 'put' };
        expect(metricValue(text, 'ucx_operations_total', labels)).toBe(1);
        expect(
          metricValue(text, 'ucx_operation_duration_seconds_count', { pid: String(pid), protocol: 'put/zcopy' }),
        ).toBe(1);
      }
      expect(metricValue(text, 'ucx_node_up')).toBe(1);
      expect(text.match(/^habanalabs_device_up\{.*state="operational"\} 1$/gm)).toHaveLength(2);
      expect(metricValue(text, 'habanalabs_memory_total_bytes', { device: '0', emulated: 'true' })).toBeGreaterThan(
        1e9,
      );
      // Each of two cards has three ports to the other one and three out of the server; eighteen have no cable.
      expect(text.match(/^habanalabs_nic_port_connected\{.*\} 0$/gm)).toHaveLength(2 * 18);
      expect(text.match(/^habanalabs_nic_port_status\{.*\} 1$/gm)).toHaveLength(2 * 6);
      expect(text).not.toMatch(/^habanalabs_nic_port_status\{.*\} 0$/m);
      const checked = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
      expect(checked.stderr.trim()).toBe(KNOWN_NAME);
      const open = await fetch(at, { headers: { accept: 'application/openmetrics-text' } });
      expect(open.headers.get('content-type')).toMatch(/^application\/openmetrics-text/);
      expect(await open.text()).toMatch(/^# TYPE ucx_operations counter\nucx_operations_total\{[\s\S]*# EOF\n$/m);
      // Scrapes while processes die: each is whole.
      const scrapes = Array.from({ length: 20 }, async () => (await fetch(at)).text());
      await two.kill();
      for (const scraped of await Promise.all(scrapes))
        expect(scraped).toContain('# TYPE habanalabs_nic_port_status gauge');
      const left = await (await fetch(at)).text();
      expect(metricValue(left, 'ucx_process_answers', { pid: String(one.pid) })).toBe(1);
      expect(left).not.toContain(`pid="${two.pid}"`);
      expect((await fetch(at.replace('/metrics', '/'))).status).toBe(404);
      expect((await fetch(at, { method: 'POST', body: 'x' })).status).toBe(405);
      exporter.kill('SIGTERM');
      expect(await once(exporter, 'exit')).toEqual([0, null]);
    },
  );
});
