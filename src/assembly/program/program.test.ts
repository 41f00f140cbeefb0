/** The start of a program: which warnings it gives, the driver as a setting, and its instrumentation. */

import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { statsNode } from '../../ucs/stats/stats-node.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import {
  Instrumentation,
  readProgram,
  sharedMemoryFailure,
  sharedMemorySpace,
  startProgram,
  withDriver,
} from './program.ts';
import { ProgramConfig } from './program-config.ts';

const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-program-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** The levels and messages of a start. */
function startedWith(env: Readonly<Record<string, string>>, start = startProgram): string[] {
  const lines: string[] = [];
  start({ env, configDirectories: [], logSink: (level, _component, message) => lines.push(`${level} ${message}`) });
  return lines;
}

describe('a start', () => {
  it('warns of unused variables, but for those of C UCX, and not for an engine that has its own variables', () => {
    expect(startedWith({ UCX_TLSS: 'x' })).toEqual([expect.stringContaining('UCX_TLSS')]);
    expect(startedWith({ UCX_TLSS: 'x', UCX_ENGINE: 'libucx' })).toEqual([]);
    expect(startedWith({ UCX_TLSS: 'x' }, readProgram)).toEqual([]);
    expect(startedWith({ UCX_TLSS: 'x', UCX_WARN_UNUSED_ENV_VARS: 'n' })).toEqual([]);
  });

  it('names variables of C UCX without a meaning in the debug log, with the reason', () => {
    const env = { UCX_LOG_LEVEL: 'debug', UCX_MEM_EVENTS: 'y', UCX_TLSS: 'x' };
    const about = startedWith(env).filter((line) => /UCX_MEM_EVENTS|UCX_TLSS/.test(line));
    expect(about.filter((line) => line.includes('UCX_MEM_EVENTS'))).toEqual([
      expect.stringMatching(/^5 UCX_MEM_EVENTS has no effect here: ./),
    ]);
    expect(about).toHaveLength(2);
  });

  it('uses a configuration that was read before as it is', () => {
    const config = ProgramConfig.read({ env: { UCX_TLS: 'self' }, configDirectories: [] });
    expect(startProgram({ config, logSink: () => {} }).source).toBe(config);
  });

  it('has the clock, the log and the environment that it is given', () => {
    const clock = new ManualClock(5);
    const env = { XDG_RUNTIME_DIR: '/run/1' };
    const lines: string[] = [];
    const program = startProgram({
      env,
      configDirectories: [],
      clock,
      logSink: (_level, component, message) => lines.push(`${component}: ${message}`),
    });
    program.log.warn('seen');
    expect([program.clock, program.env['XDG_RUNTIME_DIR'], lines]).toEqual([clock, '/run/1', ['ucp: seen']]);
  });

  it.each([
    ['logSink', { logSink: 'stderr' }],
    ['clock', { clock: {} }],
    ['clock', { clock: { nowNs: () => 0 } }],
  ])('names the argument %s that it refuses (%#)', (argument, options) => {
    expect(() => readProgram({ env: {}, configDirectories: [], ...options } as never)).toThrow(
      expect.objectContaining({ message: expect.stringContaining(argument) as string }),
    );
  });
});

describe('a driver as a setting', () => {
  it('overrides the configuration, which is not changed', () => {
    const config = ProgramConfig.read({ env: {}, configDirectories: [] }).modify('GAUDI_DRIVER', 'kernel');
    const changed = withDriver({ config }, 'emulator').config as ProgramConfig;
    expect([changed.get('GAUDI_DRIVER'), config.get('GAUDI_DRIVER')]).toEqual(['emulator', 'kernel']);
    const record = { TLS: 'self', GAUDI_DRIVER: 'kernel' };
    expect(withDriver({ config: record }, 'emulator').config).toEqual({ TLS: 'self', GAUDI_DRIVER: 'emulator' });
    expect(record.GAUDI_DRIVER).toBe('kernel');
    const options = { config: record };
    expect(withDriver(options, undefined)).toBe(options);
  });
});

describe('shared memory', () => {
  it('has the folder of UCX_POSIX_DIR, and the reason why it cannot be used', () => {
    const { config } = startProgram({ env: { UCX_POSIX_DIR: folder }, configDirectories: [] });
    expect(sharedMemorySpace(config)).toMatchObject({ folder });
    expect(sharedMemorySpace(config).connectionBytes).toBeGreaterThan(4096);
    expect(sharedMemoryFailure(config)).toBeUndefined();
    expect(readdirSync(folder)).toEqual([]);
    const missing = startProgram({ env: { UCX_POSIX_DIR: join(folder, 'none') }, configDirectories: [] });
    expect(sharedMemoryFailure(missing.config)).toContain(join(folder, 'none'));
  });
});

describe('the instrumentation of a context', () => {
  const context = { stats: () => statsNode('ucp_context', '', { ops: 3 }) };
  const programWith = (env: Readonly<Record<string, string>>) =>
    startProgram({ env, configDirectories: [], logSink: () => {}, clock: new ManualClock(1) });

  it('hides the context, and writes its statistics at the end', () => {
    const file = join(folder, 'stats.txt');
    const instrumentation = new Instrumentation(
      programWith({ UCX_STATS_DEST: `file:${file}`, UCX_STATS_TRIGGER: 'exit' }),
      context,
    );
    let hidden = 0;
    instrumentation.hide = () => {
      hidden += 1;
    };
    instrumentation.close();
    expect(hidden).toBe(1);
    expect(readFileSync(file, 'utf8')).toMatch(/ucp_context[\s\S]*3/);
  });

  it('releases the profile when the statistics cannot be written', () => {
    const profile = join(folder, 'profile.prof');
    const env = { UCX_PROFILE_MODE: 'accum', UCX_PROFILE_FILE: profile };
    const broken = programWith({ ...env, UCX_STATS_DEST: `file:${folder}/none/x`, UCX_STATS_TRIGGER: 'exit' });
    expect(() => new Instrumentation(broken, context)).toThrow(expect.objectContaining({ code: 'ERR_STATS_FILE' }));
    // The last user of the profile writes it, into the file that the first one has made.
    expect(JSON.parse(readFileSync(profile, 'utf8'))).toHaveProperty('traceEvents');
  });
});
