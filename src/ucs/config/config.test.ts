import { describe, expect, it } from 'vitest';
import { GLOBAL_CONFIG_TABLE } from '../debug/global-config.ts';
import { type ConfigTable, loadConfig } from './config.ts';
import { parseConfigFile } from './file.ts';
import { boolType, memorySizeType, type Ternary, ternaryType, uintType } from './value.ts';

interface RcacheValues {
  readonly RCACHE_MAX_SIZE: number;
}
interface CopyValues extends RcacheValues {
  readonly RCACHE: Ternary;
  readonly DMABUF: boolean;
}
const RCACHE: ConfigTable<RcacheValues> = {
  prefix: '',
  fields: [{ name: 'RCACHE_MAX_SIZE', type: memorySizeType, default: 'inf', doc: 'Bytes.' }],
};
const COPY: ConfigTable<CopyValues> = {
  prefix: 'GAUDI_COPY_',
  fields: [
    {
      name: 'RCACHE',
      type: ternaryType,
      default: 'try',
      doc: 'Use a cache.',
      deprecatedAliases: ['UCT_GAUDI_COPY_ENABLE_RCACHE', 'UCX_GAUDI_COPY_ENABLE_RCACHE'],
    },
    { name: 'DMABUF', type: boolType, default: 'y', doc: 'Export.', hidden: true },
  ],
  subTables: [RCACHE],
};

interface IbValues {
  readonly X: number;
}
const IB: ConfigTable<IbValues> = { prefix: 'IB_', fields: [{ name: 'X', type: uintType, default: '1', doc: 'X.' }] };
const RC: ConfigTable<IbValues> = { prefix: 'RC_', fields: [], subTables: [IB] };
const RC_VERBS: ConfigTable<IbValues> = { prefix: 'RC_VERBS_', fields: [], subTables: [RC] };

describe('loadConfig', () => {
  it('has the defaults of the tables', () => {
    const config = loadConfig([GLOBAL_CONFIG_TABLE, COPY]);
    expect(config.get(COPY)).toEqual({ RCACHE: 'try', DMABUF: true, RCACHE_MAX_SIZE: Infinity });
    expect(Object.isFrozen(config.get(COPY))).toBe(true);
    expect(config.warnings).toEqual([]);
    expect(config.entries.map(({ name, text, source, setBy }) => [name, text, source, setBy])).toEqual([
      ['UCX_LOG_LEVEL', 'warn', 'default', undefined],
      ['UCX_LOG_FILE', '', 'default', undefined],
      ['UCX_LOG_FILE_SIZE', 'inf', 'default', undefined],
      ['UCX_LOG_FILE_ROTATE', '0', 'default', undefined],
      ['UCX_WARN_UNUSED_ENV_VARS', 'y', 'default', undefined],
      ['UCX_GAUDI_COPY_RCACHE', 'try', 'default', undefined],
      ['UCX_GAUDI_COPY_DMABUF', 'y', 'default', undefined],
      ['UCX_GAUDI_COPY_RCACHE_MAX_SIZE', 'inf', 'default', undefined],
    ]);
  });

  it('layers file, environment and options, and reports which one applies', () => {
    const files = [
      parseConfigFile('UCX_GAUDI_COPY_RCACHE=n\nUCX_GAUDI_COPY_DMABUF=n\n', '/a/ucx.conf'),
      parseConfigFile('# c\nUCX_GAUDI_COPY_RCACHE=y\nUCX_GAUDI_COPY_RCACHE_MAX_SIZE=1m\n', '/b/ucx.conf'),
    ];
    const env = {
      UCX_GAUDI_COPY_DMABUF: 'yes',
      UCX_GAUDI_COPY_RCACHE_MAX_SIZE: '2m',
      PATH: '/bin',
      UCX_EMPTY: undefined,
    };
    const config = loadConfig([COPY], { files, env, overrides: { GAUDI_COPY_RCACHE_MAX_SIZE: '3m' } });
    expect(config.entries.map(({ value, source }) => [value, source])).toEqual([
      ['yes', 'file /b/ucx.conf:2'],
      [true, 'environment'],
      [3 * 2 ** 20, 'option'],
    ]);
    expect(config.warnings).toEqual([]);
  });

  it('lets the prefix of an outer table override that of an inner one', () => {
    const x = (env: Record<string, string>): number => loadConfig([RC_VERBS], { env }).get(RC_VERBS).X;
    expect(x({})).toBe(1);
    expect(x({ UCX_IB_X: '2' })).toBe(2);
    expect(x({ UCX_IB_X: '2', UCX_RC_X: '3' })).toBe(3);
    expect(x({ UCX_RC_VERBS_X: '4', UCX_IB_X: '2', UCX_RC_X: '3' })).toBe(4);
    const entry = loadConfig([RC_VERBS], { env: { UCX_IB_X: '2' } }).entries[0]!;
    expect([entry.name, entry.setBy]).toEqual(['UCX_RC_VERBS_X', 'UCX_IB_X']);
    expect(entry.inherits).toEqual(['UCX_IB_X', 'UCX_RC_X']);
  });

  it('lets the plain name set the fields of tables without a prefix, wherever they are embedded', () => {
    const size = (env: Record<string, string>): number => loadConfig([COPY], { env }).get(COPY).RCACHE_MAX_SIZE;
    expect(size({ UCX_RCACHE_MAX_SIZE: '1k' })).toBe(1024);
    expect(size({ UCX_GAUDI_COPY_RCACHE_MAX_SIZE: '2k', UCX_RCACHE_MAX_SIZE: '1k' })).toBe(2048);
    const [, , entry] = loadConfig([COPY]).entries;
    expect([entry!.name, entry!.inherits]).toEqual(['UCX_GAUDI_COPY_RCACHE_MAX_SIZE', ['UCX_RCACHE_MAX_SIZE']]);
  });

  it('layers a custom prefix over the plain one', () => {
    const env = { UCX_RC_VERBS_X: '5', MPI_UCX_IB_X: '6', OTHER_UCX_IB_X: '7' };
    expect(loadConfig([RC_VERBS], { env }).get(RC_VERBS).X).toBe(5);
    for (const envPrefix of ['MPI', 'MPI_']) {
      const config = loadConfig([RC_VERBS], { env, envPrefix });
      expect(config.get(RC_VERBS).X).toBe(6);
      expect(config.warnings).toEqual([]);
    }
    const { unused } = loadConfig([RC_VERBS], { env: { MPI_UCX_IB_Y: '6' }, envPrefix: 'MPI' });
    expect(unused.map((each) => each.warningBeside([]))).toEqual([
      expect.stringContaining('MPI_UCX_IB_Y (maybe: MPI_UCX_IB_X?)'),
    ]);
  });

  it('refuses values of several lines or with a comment, which no file could have', () => {
    for (const LOG_FILE of ['a\nb', 'a\rb', 'a ;b', 'a\t; b']) {
      expect(() => loadConfig([GLOBAL_CONFIG_TABLE], { overrides: { LOG_FILE } })).toThrow(
        expect.objectContaining({ code: 'ERR_CONFIG_VALUE', message: expect.stringContaining('one line') as string }),
      );
    }
    expect(
      loadConfig([GLOBAL_CONFIG_TABLE], { overrides: { LOG_FILE: 'a\n' } }).get(GLOBAL_CONFIG_TABLE).LOG_FILE,
    ).toBe('a');
  });

  it('names variable, rule, value and source of a bad value', () => {
    const cases = [
      [{ env: { UCX_IB_X: 'many' } }, 'UCX_IB_X', 'environment'],
      [{ files: [parseConfigFile('\nUCX_RC_X = many', '/etc/ucx.conf')] }, 'UCX_RC_X', 'file /etc/ucx.conf:2'],
      [{ overrides: { RC_VERBS_X: 'many' } }, 'UCX_RC_VERBS_X', 'option'],
    ] as const;
    for (const [sources, variable, source] of cases) {
      expect(() => loadConfig([RC_VERBS], sources)).toThrow(
        expect.objectContaining({
          code: 'ERR_CONFIG_VALUE',
          message: `${variable} (${source}) must be an unsigned integer, got "many"`,
          details: { variable, rule: 'an unsigned integer', value: 'many', source },
        }),
      );
    }
  });

  it('shows the beginning of a long value', () => {
    const value = 'x'.repeat(100_000);
    expect(() => loadConfig([RC_VERBS], { env: { UCX_IB_X: value } })).toThrow(
      expect.objectContaining({
        message: `UCX_IB_X (environment) must be an unsigned integer, got "${'x'.repeat(199)}…"`,
        details: expect.objectContaining({ value }),
      }),
    );
  });

  it('reports unused variables with the nearest name', () => {
    const env = { UCX_GAUDI_COPY_RCACH: 'y', UCX_SOMETHING_ELSE_ENTIRELY: '1', UCX_CONFIG_DIR: '/c', HOME: '/h' };
    const text = 'UCX_LOGLEVEL=info\n[host]\nCPU model=Grace\n[all]\nUCX_DISTANCE_BW=auto';
    const files = [parseConfigFile(text, '/c/ucx.conf')];
    const config = loadConfig([GLOBAL_CONFIG_TABLE, COPY], { env, files });
    expect(config.warnings).toEqual([]);
    expect(config.skipped).toEqual(['section [host] of /c/ucx.conf does not apply to this machine: CPU model=Grace']);
    expect(config.unused.map((each) => each.warningBeside([]))).toEqual([
      'unused variable in file /c/ucx.conf:1: UCX_LOGLEVEL (maybe: UCX_LOG_LEVEL?) (set UCX_WARN_UNUSED_ENV_VARS=n to suppress this warning)',
      'unused environment variable: UCX_GAUDI_COPY_RCACH (maybe: UCX_GAUDI_COPY_RCACHE?) (set UCX_WARN_UNUSED_ENV_VARS=n to suppress this warning)',
      'unused environment variable: UCX_SOMETHING_ELSE_ENTIRELY (set UCX_WARN_UNUSED_ENV_VARS=n to suppress this warning)',
    ]);
  });

  it('accepts older names, weaker than the new one, and notes them without a warning', () => {
    const env = { UCT_GAUDI_COPY_ENABLE_RCACHE: 'n' };
    const config = loadConfig([COPY], { env });
    expect(config.get(COPY).RCACHE).toBe('no');
    expect(config.notes).toEqual(['UCT_GAUDI_COPY_ENABLE_RCACHE (environment) is read as UCX_GAUDI_COPY_RCACHE']);
    expect(config.warnings).toEqual([]);
    const both = loadConfig([COPY], { env: { ...env, UCX_GAUDI_COPY_RCACHE: 'y' } });
    expect(both.get(COPY).RCACHE).toBe('yes');
    expect(both.notes).toHaveLength(1);
    const option = loadConfig([COPY], { env: { UCX_GAUDI_COPY_RCACHE: 'y' }, overrides: env });
    expect(option.get(COPY).RCACHE).toBe('no');
    expect(option.notes).toEqual([expect.stringContaining('UCT_GAUDI_COPY_ENABLE_RCACHE (option) is read as')]);
    const deprecated = loadConfig([COPY], { env: { UCX_GAUDI_COPY_ENABLE_RCACHE: 'n' } });
    expect(deprecated.notes).toEqual([]);
    expect(deprecated.warnings).toEqual([
      'UCX_GAUDI_COPY_ENABLE_RCACHE (environment) is deprecated, use UCX_GAUDI_COPY_RCACHE instead',
    ]);
  });

  it('rejects options that name no field', () => {
    expect(() => loadConfig([COPY], { overrides: { UCX_GAUDI_COPY_DMABUFF: 'y' } })).toThrow(
      expect.objectContaining({
        code: 'ERR_CONFIG_UNKNOWN',
        message: expect.stringContaining('UCX_GAUDI_COPY_DMABUF?'),
      }),
    );
  });

  it('rejects tables that collide and queries of tables that were not loaded', () => {
    expect(() => loadConfig([COPY, COPY])).toThrow(/must not define a variable twice/);
    expect(() => loadConfig([COPY]).get(IB)).toThrow(/must be a table passed to loadConfig/);
  });
});
