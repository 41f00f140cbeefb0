import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Config, type ConfigReadOptions } from '../../index.ts';
import { parseConfigFile } from '../../ucs/config/file.ts';
import { startProgram } from './program.ts';

const CLEAN: ConfigReadOptions = { env: {}, configDirectories: [] };
const logSink = (): void => {};

describe('Config', () => {
  it('has the text of every field, under every name', () => {
    const config = Config.read({ ...CLEAN, env: { UCX_TLS: 'self, posix' } });
    expect(config.get('UCX_TLS')).toBe('self,posix');
    expect(config.get('TLS')).toBe('self,posix');
    expect(config.get('UCT_GAUDI_COPY_ENABLE_RCACHE')).toBe(config.get('GAUDI_COPY_RCACHE'));
    for (const { name, text } of config.entries) expect(config.get(name)).toBe(text);
    expect(() => config.get('TSL')).toThrow(
      expect.objectContaining({ code: 'ERR_CONFIG_UNKNOWN', message: expect.stringContaining('UCX_TLS?') as string }),
    );
  });

  it('can be modified above environment and files, under any name; the last change applies', () => {
    const config = Config.read({ ...CLEAN, env: { UCX_TLS: 'self' } });
    expect(config.modify('TLS', 'posix').modify('UCX_TLS', 'cma').modify('TLS', 'shm').get('TLS')).toBe('shm');
    expect(config.entries.find(({ name }) => name === 'UCX_TLS')).toMatchObject({ source: 'option' });
    config.modify('UCT_GAUDI_COPY_ENABLE_RCACHE', 'n');
    expect(config.get('GAUDI_COPY_RCACHE')).toBe('n');
    expect(config.values.notes).toEqual([expect.stringContaining('(option) is read as UCX_GAUDI_COPY_RCACHE')]);
    const alias = 'UCT_GAUDI_COPY_ENABLE_RCACHE';
    expect(config.modify('GAUDI_COPY_RCACHE', 'y').modify(alias, 'n').get('GAUDI_COPY_RCACHE')).toBe('n');
    expect(config.modify(alias, 'try').modify('GAUDI_COPY_RCACHE', 'y').get(alias)).toBe('y');
    expect(config.values.notes).toEqual([]);
    const region = (name: string): string => config.get(`${name}RCACHE_MAX_REGIONS`);
    config.modify('GAUDI_COPY_RCACHE_MAX_REGIONS', '5').modify('RCACHE_MAX_REGIONS', '7');
    expect([region('GAUDI_COPY_'), region('')]).toEqual(['7', '7']);
    expect(config.modify('GAUDI_COPY_RCACHE_MAX_REGIONS', '8').modify('RCACHE_MAX_REGIONS', '9')).toBe(config);
    expect(region('GAUDI_COPY_')).toBe('9');
  });

  it('is unchanged after a rejected change', () => {
    const config = Config.read(CLEAN).modify('TLS', 'self');
    const before = config.print();
    const refused: readonly (readonly [string, unknown, string])[] = [
      ['TLSS', 'self', 'ERR_CONFIG_UNKNOWN'],
      ['GAUDI_COPY_BW', 'fast', 'ERR_CONFIG_VALUE'],
      ['TLS', 5, 'ERR_INVALID_PARAM'],
      ['TLS', undefined, 'ERR_INVALID_PARAM'],
    ];
    for (const [name, value, code] of refused) {
      expect(() => config.modify(name, value as string), name).toThrow(expect.objectContaining({ code }));
      expect(config.print()).toBe(before);
      expect(config.clone().print()).toBe(before);
    }
  });

  it('keeps the value of several fields when one of them is changed', () => {
    const config = Config.read(CLEAN).modify('RCACHE_MAX_REGIONS', '7').modify('GAUDI_COPY_RCACHE_MAX_REGIONS', '5');
    const values = config.entries
      .filter(({ inherits }) => inherits.includes('UCX_RCACHE_MAX_REGIONS'))
      .map(({ name, text }) => [name, text]);
    expect(values.length).toBeGreaterThan(1);
    for (const [name, text] of values)
      expect([name, text]).toEqual([name, name === 'UCX_GAUDI_COPY_RCACHE_MAX_REGIONS' ? '5' : '7']);
  });

  it('is copied with its changes and its sources', () => {
    const original = Config.read({ ...CLEAN, env: { UCX_PROGRESS_SPIN: '5us' } }).modify('TLS', 'self');
    const copy = original.clone();
    expect(copy.print()).toBe(original.print());
    copy.modify('TLS', 'posix').modify('PROGRESS_SPIN', '9us');
    expect([original.get('TLS'), original.get('PROGRESS_SPIN')]).toEqual(['self', '5us']);
    expect([copy.get('TLS'), copy.get('PROGRESS_SPIN')]).toEqual(['posix', '9us']);
  });

  it('is read once: a later change of the environment affects neither it nor its copies', () => {
    const env: Record<string, string> = { UCX_TLS: 'self' };
    const config = Config.read({ ...CLEAN, env });
    env['UCX_TLS'] = 'posix';
    expect([config.clone().get('TLS'), config.modify('PROGRESS_SPIN', '1us').get('TLS')]).toEqual(['self', 'self']);
  });

  it('keeps the values that a program has read', () => {
    const config = Config.read(CLEAN).modify('LOG_LEVEL', 'info');
    const { log } = startProgram({ config, logSink });
    config.modify('LOG_LEVEL', 'trace');
    expect(log.level).toBe(4);
    expect(startProgram({ config, logSink }).log.level).toBe(6);
  });

  it('has a prefix for programs', () => {
    const env = { UCX_TLS: 'self', MPI_UCX_TLS: 'posix' };
    expect(Config.read({ ...CLEAN, env, envPrefix: 'MPI' }).get('TLS')).toBe('posix');
    expect(
      Config.read({ ...CLEAN, env, envPrefix: 'MPI' })
        .clone()
        .get('TLS'),
    ).toBe('posix');
  });

  it('prints what reads back as itself, for any change', () => {
    const values: readonly (readonly [string, fc.Arbitrary<string>])[] = [
      ['TLS', fc.constantFrom('all', '^self', 'shm,gaudi', String.raw`\posix`, '')],
      ['ACC_DEVICES', fc.constantFrom('gaudi[0-3]', '^gaudi1', 'all')],
      ['LOG_LEVEL', fc.constantFrom('info', 'warn,cma:debug,card[0-1]:trace')],
      ['LOG_FILE', fc.constantFrom('', 'stdout', 'ucx_%h_%p.log', 'a #1.log', '#x', ';x', 'a#b;c')],
      ['LOG_FILE_SIZE', fc.nat().map((bytes) => `${bytes}k`)],
      ['GAUDI_COPY_BW', fc.constantFrom('1GBs', 'h2d:3.5GBs,1e3MBs')],
      ['PROGRESS_SPIN', fc.double({ min: 0, max: 1e9, noNaN: true }).map((us) => `${us}us`)],
      ['RNDV_THRESH', fc.constantFrom('auto', 'inf', '0', '8k')],
    ];
    const change = fc.record(Object.fromEntries(values), { requiredKeys: [] });
    const shape = ({ entries }: Pick<Config, 'entries'>): unknown => entries.map(({ name, value }) => [name, value]);
    fc.assert(
      fc.property(change, fc.boolean(), (options, decorated) => {
        const config = Config.read(CLEAN, options as Record<string, string>);
        const { assignments } = parseConfigFile(config.print({ decorated, hidden: true }));
        const env = Object.fromEntries(assignments.map(({ name, value }) => [name, value]));
        expect(shape(Config.read({ ...CLEAN, env }))).toEqual(shape(config));
      }),
      { numRuns: 50 },
    );
  });
});

describe('the layers', () => {
  let root = '';
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'gaudi-ucx-layers-'));
  });
  afterEach(() => rmSync(root, { recursive: true }));

  /** A configuration from folders with a `ucx.conf` each, in reading order. */
  const layered = (files: readonly string[], sources: ConfigReadOptions = {}): Config => {
    const configDirectories = files.map((text, index) => {
      const folder = join(root, String(index));
      mkdirSync(folder);
      writeFileSync(join(folder, 'ucx.conf'), text);
      return folder;
    });
    return Config.read({ env: {}, ...sources, configDirectories });
  };

  it('are: default, files in their order, environment, prefixed environment, options', () => {
    const names = [
      'RNDV_FRAG_ALLOC_COUNT',
      'GAUDI_IPC_CACHE_MAX_REGIONS',
      'LOG_FILE_ROTATE',
      'GAUDI_EMULATOR_CARDS',
      'GAUDI_EMULATOR_DMA_THREADS',
    ];
    const assign = (from: number, value: number): string =>
      names
        .slice(from)
        .map((name) => `UCX_${name}=${value}\n`)
        .join('');
    const env = Object.fromEntries(
      names.flatMap((name, index) => [
        ...(index >= 2 ? [[`UCX_${name}`, '4']] : []),
        ...(index >= 3 ? [[`MPI_UCX_${name}`, '5']] : []),
      ]),
    ) as Record<string, string>;
    const config = layered([assign(0, 2), assign(1, 3)], { env, envPrefix: 'MPI' }).modify(names[4]!, '6');
    expect(names.map((name) => config.get(name))).toEqual(['2', '3', '4', '5', '6']);
    expect(config.get('RNDV_FRAG_SIZE')).toBe('512K');
  });

  it('report the file of an invalid value', () => {
    expect(() => layered(['\nUCX_POSIX_SEG_COUNT=many'])).toThrow(
      expect.objectContaining({
        code: 'ERR_CONFIG_VALUE',
        details: expect.objectContaining({
          variable: 'UCX_POSIX_SEG_COUNT',
          value: 'many',
          source: expect.stringMatching(/^file .*ucx\.conf:2$/) as string,
        }) as object,
      }),
    );
  });

  it('accept an invalid value that a stronger layer replaces', () => {
    expect(
      Config.read({ ...CLEAN, env: { UCX_POSIX_SEG_COUNT: 'many' } }, { POSIX_SEG_COUNT: '8' }).get('POSIX_SEG_COUNT'),
    ).toBe('8');
  });

  it('accept the sizes of fragments in the syntax of UCX', () => {
    const of = (text: string): string => Config.read(CLEAN, { RNDV_FRAG_SIZE: text }).get('RNDV_FRAG_SIZE');
    expect(['1m', 'host:256K,cuda:4M', '64k,cuda:4M'].map(of)).toEqual(['1M', '256K', '64K']);
    for (const bad of ['cuda:4M', 'moon:1m', 'host', '']) expect(() => of(bad), bad).toThrow(/UCX_RNDV_FRAG_SIZE/);
    expect(Config.read(CLEAN, { RNDV_FRAG_ALLOC_COUNT: 'host:8,gaudi:2' }).get('RNDV_FRAG_ALLOC_COUNT')).toBe('8');
  });

  it.each([
    ['RNDV_FRAG_SIZE', '1k', 'a size from 64k to 16m'],
    ['RNDV_FRAG_ALLOC_COUNT', '1', 'at least 2'],
    ['POSIX_FIFO_SIZE', '3', 'a power of two, 2 to 65536'],
    ['POSIX_SEG_SIZE', '100', 'a multiple of 64'],
    ['GAUDI_EMULATOR_DMA_THREADS', '9', '0 to 8'],
  ])('refuse a value out of the bounds of its field: %s=%s', (name, value, rule) => {
    expect(() => Config.read({ ...CLEAN, env: { [`UCX_${name}`]: value } })).toThrow(
      expect.objectContaining({
        code: 'ERR_CONFIG_VALUE',
        details: {
          variable: `UCX_${name}`,
          rule: expect.stringContaining(rule) as string,
          value,
          source: 'environment',
        },
      }),
    );
  });

  it('begin in the folders of UCX: home, UCX_CONFIG_DIR', () => {
    const [home, chosen] = ['home', 'chosen'].map((name) => join(root, name)) as [string, string];
    for (const folder of [home, chosen]) mkdirSync(folder);
    writeFileSync(join(home, 'ucx.conf'), 'UCX_TLS=self\nUCX_POSIX_SEG_COUNT=8\n');
    writeFileSync(join(chosen, 'ucx.conf'), 'UCX_TLS=cma\n');
    const config = Config.read({ env: { HOME: home, UCX_CONFIG_DIR: chosen } });
    expect([config.get('TLS'), config.get('POSIX_SEG_COUNT')]).toEqual(['cma', '8']);
    expect(config.values.warnings).toEqual([]);
  });
});

describe('startProgram', () => {
  it('accepts options as a record or as a Config', () => {
    const config = { TLS: 'self' };
    const [first, second] = [
      startProgram({ ...CLEAN, config, logSink }),
      startProgram({ config: Config.read(CLEAN, config), logSink }),
    ];
    expect(second.config.entries.map(({ text }) => text)).toEqual(first.config.entries.map(({ text }) => text));
  });

  it.each(['env', 'envPrefix', 'configDirectories'] as const)('rejects %s together with a Config', (name) => {
    const config = Config.read(CLEAN);
    const sources = { env: {}, envPrefix: 'MPI', configDirectories: [] };
    expect(() => startProgram({ config, [name]: sources[name], logSink })).toThrow(
      expect.objectContaining({
        code: 'ERR_INVALID_PARAM',
        details: expect.objectContaining({ argument: name }) as object,
      }),
    );
  });

  it.each([null, 'TLS=self', 5])('rejects %j as configuration', (config) => {
    expect(() => startProgram({ ...CLEAN, config: config as unknown as Record<string, string>, logSink })).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
    );
  });

  it('warns about variables that nothing reads, unless disabled', () => {
    const warned = (env: Record<string, string>): string[] => {
      const messages: string[] = [];
      startProgram({ ...CLEAN, env, logSink: (_level, _component, message) => messages.push(message) });
      return messages;
    };
    expect(warned({ UCX_TLSS: 'self', PATH: '/bin' })).toEqual([
      'unused environment variable: UCX_TLSS (maybe: UCX_TLS?) (set UCX_WARN_UNUSED_ENV_VARS=n to suppress this warning)',
    ]);
    expect(warned({ UCX_TLSS: 'self', UCX_WARN_UNUSED_ENV_VARS: 'n' })).toEqual([]);
  });

  it('logs into the file of UCX_LOG_FILE', () => {
    const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-program-'));
    try {
      const { log } = startProgram({
        ...CLEAN,
        config: { LOG_FILE: join(folder, '%p.log'), LOG_LEVEL: 'warn,cma:info' },
      });
      log.info('not wanted');
      log.child('cma').info('copies begin');
      expect(readFileSync(join(folder, `${process.pid}.log`), 'utf8')).toMatch(
        /^\[[\d.]+\] \[.+\] +cma UCX {2}INFO {2}copies begin\n$/,
      );
      expect(() => startProgram({ ...CLEAN, config: { LOG_FILE: join(folder, 'no', 'log') } })).toThrow(
        expect.objectContaining({ code: 'ERR_LOG_FILE' }),
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe('CONFIG_TABLES', () => {
  it('have names without doubled words', () => {
    expect(Config.read(CLEAN).get('UCX_GAUDI_COPY_RCACHE_MAX_REGIONS')).not.toBe('');
    for (const { name } of Config.read(CLEAN).entries) expect(name).not.toMatch(/_([A-Z]+)_\1(_|$)/);
  });

  it('have defaults that their types print as a string with the same value, and documentation', () => {
    for (const { field, value, text } of Config.read(CLEAN).entries) {
      expect(field.type.parse(text), field.name).toEqual(value);
      expect(field.doc, field.name).toMatch(/^[A-Za-z].*[.;]$|^[^\n]*\.$/);
      expect(field.name).toMatch(/^[A-Z0-9_]+$/);
    }
  });

  it('have types that parse any text without an exception, and print accepted values as texts that parse to them', () => {
    const words = [
      'all',
      '^',
      ',',
      ':',
      '[0-3]',
      '*',
      'auto',
      'inf',
      'try',
      'y',
      '0',
      '1',
      '.5',
      '1e-9',
      '12',
      'k',
      'mb',
      'GBs',
      'bps',
    ];
    const more = [
      'us',
      'm',
      'host',
      'h2d',
      'default',
      'warn',
      'debug',
      'card',
      'emulator:/',
      ' ',
      '-',
      '\\',
      '\n',
      'exit',
      'signal:',
      'file:',
    ];
    // Not fast-check's unit `binary`: it keeps a table of all characters, 80 MB that every later garbage collection of the process goes through.
    const character = fc.integer({ min: 0, max: 0x10_ffff }).map((point) => String.fromCodePoint(point));
    const text = fc.oneof(
      fc.array(fc.constantFrom(...words, ...more), { maxLength: 8 }).map((parts) => parts.join('')),
      fc.string({ unit: character }),
      fc.double({ min: 0, max: 1e20, noNaN: true }).map(String),
      fc.double({ min: 0, max: 1, noNaN: true }).map((share) => share.toFixed(9)),
    );
    const line = text.map((each) => each.replace(/[\r\n]/g, ' '));
    for (const { field } of Config.read(CLEAN).entries) {
      fc.assert(
        fc.property(line, (given) => {
          const value = field.type.parse(given);
          if (value === undefined) return;
          const printed = field.type.print(value);
          expect(field.type.parse(printed), `${field.name}: ${given} -> ${printed}`).toEqual(value);
        }),
        { numRuns: 200 },
      );
    }
  });
});
