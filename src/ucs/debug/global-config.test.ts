import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../config/config.ts';
import { GLOBAL_CONFIG_TABLE, logLevelsType } from './global-config.ts';
import { LOG_LEVEL_NAMES, LogLevel, levelOf } from './log.ts';

describe('UCX_LOG_LEVEL', () => {
  it('accepts the levels of UCX', () => {
    const level = (text: string): number | undefined => logLevelsType.parse(text)?.level;
    expect(['fatal', 'error', 'WARN', 'diag', 'info', 'debug', 'trace'].map(level)).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(['req', 'data', 'async', 'func', 'poll'].map(level)).toEqual([7, 8, 9, 10, 11]);
    expect(['trace_data', 'trace_poll'].map(level)).toEqual([8, 11]);
  });

  it('accepts levels of components, by name, glob and range; the last match applies', () => {
    const levels = logLevelsType.parse('error, gaudi_*:info,card[0-1]:trace ,gaudi_ipc:debug')!;
    const of = (component: string): number => levelOf(levels, component);
    expect(['ucp', 'gaudi_copy', 'gaudi_ipc', 'card1', 'card2'].map(of)).toEqual([
      LogLevel.ERROR,
      LogLevel.INFO,
      LogLevel.DEBUG,
      LogLevel.TRACE,
      LogLevel.ERROR,
    ]);
    expect(levelOf(logLevelsType.parse('ucp:debug')!, 'posix')).toBe(LogLevel.WARN);
  });

  it('refuses components that no regular expression can match', () => {
    expect(logLevelsType.parse(`${'x'.repeat(40_000)}:info`)).toBeUndefined();
  });

  it.each(['', 'loud', 'warn,', 'warn,error', ':debug', 'ucp:', 'ucp:loud', 'a,b:info'])('refuses %j', (text) => {
    expect(logLevelsType.parse(text)).toBeUndefined();
    expect(() => loadConfig([GLOBAL_CONFIG_TABLE], { env: { UCX_LOG_LEVEL: text } })).toThrow(
      expect.objectContaining({
        code: 'ERR_CONFIG_VALUE',
        message: expect.stringContaining('UCX_LOG_LEVEL') as string,
      }),
    );
  });

  it('round-trips', () => {
    const level = fc.integer({ min: 0, max: LOG_LEVEL_NAMES.length - 1 }) as fc.Arbitrary<LogLevel>;
    const component = fc.stringMatching(/^[a-z0-9_*?]{1,8}$/);
    const levels = fc.record({ level, components: fc.array(fc.record({ component, level })) });
    fc.assert(
      fc.property(levels, (value) => {
        expect(logLevelsType.parse(logLevelsType.print(value))).toEqual(value);
      }),
    );
  });

  it('never throws', () => {
    fc.assert(fc.property(fc.string(), (text) => logLevelsType.parse(text) !== null));
  });
});

describe('GLOBAL_CONFIG_TABLE', () => {
  it('logs warnings to standard error by default', () => {
    expect(loadConfig([GLOBAL_CONFIG_TABLE]).get(GLOBAL_CONFIG_TABLE)).toEqual({
      LOG_LEVEL: { level: LogLevel.WARN, components: [] },
      LOG_FILE: '',
      LOG_FILE_SIZE: Infinity,
      LOG_FILE_ROTATE: 0,
      WARN_UNUSED_ENV_VARS: true,
    });
  });
});
