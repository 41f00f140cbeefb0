/** What makes a context visible: the dump at a signal, the table of transports, the sockets of its thread, and the end of all of that. */

import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { ContextSnapshot } from '../../api/contract/snapshot.ts';
import { loadConfig } from '../../ucs/config/config.ts';
import { operationEnd } from '../../ucs/debug/diagnostics.ts';
import { createLog, LogLevel } from '../../ucs/debug/log.ts';
import { STATS_CONFIG_TABLE } from '../../ucs/stats/stats-config.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { INSPECT_CONFIG_TABLE } from '../program/config.ts';
import type { Program } from '../program/program.ts';
import { inspectContext } from './context-inspection.ts';
import { socketFolder } from './inspect-sockets.ts';
import { type ListedContext, processSnapshot } from './process-snapshot.ts';

const SIGNAL = 'SIGURG';
let runtime: string;
let lines: string[];

beforeEach(() => {
  runtime = mkdtempSync(join(tmpdir(), 'gu-'));
  lines = [];
});
afterEach(() => rmSync(runtime, { recursive: true, force: true }));

function program(variables: Readonly<Record<string, string>>, level: LogLevel = LogLevel.WARN): Program {
  const env = { UCX_INSPECT: 'n', ...variables };
  const config = loadConfig([INSPECT_CONFIG_TABLE, STATS_CONFIG_TABLE], { env });
  const log = createLog('test', level, (_level, _component, message) => lines.push(message));
  return { config, log, clock: systemClock, env: { XDG_RUNTIME_DIR: runtime } } as unknown as Program;
}

/** A context with an engine of this name. */
function context(engine: string): ListedContext {
  const snapshot = {
    engine: { name: engine, version: '1', reason: 'test' },
    node: { kind: 'emulator' },
    resources: ['tcp/lo'],
    unavailable: [],
    cards: [],
    memory: [],
    dmabufs: [],
    channels: [],
    caches: [],
    workers: [],
  } as unknown as ContextSnapshot;
  const stats = { className: 'ucp_worker', name: '', counters: {}, children: [] };
  return { snapshot: () => snapshot, stats: () => stats } as unknown as ListedContext;
}

/** The engines in the log since the last call. */
const logged = (): string[] => lines.splice(0).flatMap((line) => /engine (first|second) /.exec(line)?.[1] ?? []);

it('a signal logs the contexts whose settings name it, each once, until they are closed', () => {
  const dump = (): string[] => {
    process.emit(SIGNAL, SIGNAL);
    return logged();
  };
  const before = process.listenerCount(SIGNAL);
  const env = { UCX_DEBUG_SIGNO: 'URG' };
  const [endFirst, endSecond] = [
    inspectContext(program(env), context('first')),
    inspectContext(program(env), context('second')),
  ];
  const endOther = inspectContext(program({}), context('first'));
  expect(dump()).toEqual(['first', 'second']);
  endFirst();
  expect(dump()).toEqual(['second']);
  endSecond();
  expect(dump()).toEqual([]);
  expect(process.listenerCount(SIGNAL)).toBe(before);
  endOther();
});

it('the table of transports is printed if asked for, or from level info on', () => {
  const table = (value: string, level: LogLevel): number => {
    inspectContext(program({ UCX_PRINT_TRANSPORT_TABLES: value }, level), context('first'))();
    return lines.splice(0).length;
  };
  expect(table('y', LogLevel.WARN)).toBeGreaterThan(0);
  expect(table('n', LogLevel.DEBUG)).toBe(0);
  expect(table('try', LogLevel.WARN)).toBe(0);
  expect(table('try', LogLevel.INFO)).toBeGreaterThan(0);
  expect(table('try', LogLevel.DEBUG)).toBeGreaterThan(0);
});

it('a context is listed while it is open, and served if its settings say so', () => {
  const shown = (): number => processSnapshot().contexts.length;
  const before = shown();
  const served = inspectContext(program({ UCX_INSPECT: 'y' }), context('first'));
  const hidden = inspectContext(program({}), context('second'));
  expect(shown()).toBe(before + 1);
  const sockets = () => readdirSync(socketFolder(runtime));
  expect(sockets()).toHaveLength(1);
  hidden();
  expect([shown(), sockets().length]).toEqual([before + 1, 1]);
  served();
  expect([shown(), existsSync(socketFolder(runtime)) ? sockets() : []]).toEqual([before, []]);
});

it('latencies are measured as long as a context wants them', () => {
  const before = operationEnd.hasSubscribers;
  expect(before).toBe(false);
  const ends = ['y', 'n', 'y'].map((value) => inspectContext(program({ UCX_STATS_LATENCY: value }), context('x')));
  for (const [index, expected] of [true, true, false].entries()) {
    ends[index]!();
    expect(operationEnd.hasSubscribers).toBe(expected);
  }
});
