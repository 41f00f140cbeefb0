/** Documented settings, tried as a user would: exported, copied from a page, misspelt. */

import { describe, expect, it } from 'vitest';
import { Context } from '../../../src/index.ts';
import { LogLevel } from '../../../src/ucs/debug/log.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { useCommandLine } from '../../fixtures/tools/command-line.ts';

const { run, runHere } = useCommandLine();

/** The settings from the guide to the C implementation. */
const EXPORTED =
  'UCT_GAUDI_COPY_ENABLE_MAPPED_DMABUF=try UCT_GAUDI_COPY_ENABLE_RCACHE=try UCT_GAUDI_COPY_REG_COST=7000ns UCT_GAUDI_COPY_ENABLE_HW_BLOCK_ACCESS=try UCT_GAUDI_COPY_ENABLE_NIC_SCALE_OUT=try';
const TABLE =
  '[{"index":0,"module_id":2,"bus_id":"0000:33:00.0"},{"index":1,"module_id":0,"bus_id":"0000:4d:00.0"},{"index":2,"module_id":1,"bus_id":"0000:4e:00.0"},{"index":3,"module_id":3,"bus_id":"0000:34:00.0"}]';

/** Warnings of a context that is created with this environment. */
async function warningsOf(env: Readonly<Record<string, string>>, engine: 'native' | 'libucx'): Promise<string[]> {
  const warnings: string[] = [];
  const context = await Context.create({
    engine,
    env: { UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '1', ...env },
    configDirectories: [],
    logSink: (level, _component, message) => {
      if (level <= LogLevel.WARN) warnings.push(message);
    },
  });
  await context.close();
  return warnings;
}

describe('the documented settings', () => {
  it('run the demonstration unchanged, without a warning', () => {
    const settings = Object.fromEntries(EXPORTED.split(' ').map((setting) => setting.split('=') as [string, string]));
    const { code, out, err } = run(['demo', '--cards', '2', '--bytes', '1M'], settings);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(out).not.toBe('');
  });

  it.each(['DMABUF', 'MAPPED_DMABUF', 'RCACHE', 'HW_BLOCK_ACCESS', 'NIC_SCALE_OUT'])(
    'open a context with every value and spelling: %s',
    async (field) => {
      const names = [`UCT_GAUDI_COPY_ENABLE_${field}`, `UCX_GAUDI_COPY_ENABLE_${field}`, `UCX_GAUDI_COPY_${field}`];
      for (const name of names) {
        for (const value of ['y', 'n', 'try', 'auto']) {
          const isDeprecated = name.startsWith('UCX_GAUDI_COPY_ENABLE');
          expect(await warningsOf({ [name]: value }, 'native')).toEqual(
            isDeprecated ? [`${name} (environment) is deprecated, use UCX_GAUDI_COPY_${field} instead`] : [],
          );
        }
      }
    },
  );

  it.each(['REG_COST=3us', 'MAX_EVENTS=8', 'MAX_EVENTS=inf'])('open a context: %s', async (setting) => {
    const [field, value] = setting.split('=') as [string, string];
    expect(await warningsOf({ [`UCX_GAUDI_COPY_${field}`]: value }, 'native')).toEqual([]);
    expect(await warningsOf({ [`UCT_GAUDI_COPY_${field}`]: value }, 'native')).toEqual([]);
  });

  it('name the cards of an emulated node of the process', async () => {
    const { code, out, err } = await runHere(['info', '-s'], {
      GAUDI_MAPPING_TABLE: TABLE,
      UCX_GAUDI_EMULATOR_CARDS: '8',
    });
    expect({ code, err }).toEqual({ code: 0, err: '' });
    const cards = [...out.matchAll(/bus id: (\S+)[\s\S]*?module id: (\d)/g)].map(
      ([, bus, module]) => `${bus} ${module}`,
    );
    expect(cards).toEqual(
      expect.arrayContaining(['0000:33:00.0 2', '0000:4d:00.0 0', '0000:4e:00.0 1', '0000:34:00.0 3']),
    );
    expect(new Set(cards).size).toBe(8);
    expect((await runHere(['info', '-d'], { GAUDI_MAPPING_TABLE: TABLE, UCX_GAUDI_EMULATOR_CARDS: '4' })).code).toBe(0);
  });

  it('are shown by every tool: the index of the table beside bus id and module', async () => {
    const env = { GAUDI_MAPPING_TABLE: TABLE, UCX_GAUDI_EMULATOR_CARDS: '5' };
    const placesOf = (cards: readonly { index?: number; busId: string; moduleId?: number }[]): unknown =>
      cards.filter(({ index }) => index !== undefined).map(({ index, busId, moduleId }) => [index, moduleId, busId]);
    const entries = JSON.parse(TABLE) as { index: number; module_id: number; bus_id: string }[];
    const expected = entries.map((entry) => [entry.index, entry.module_id, entry.bus_id]);
    const { system } = JSON.parse((await runHere(['info', '-s', '--json'], env)).out) as {
      system: { cards: { index?: number; busId: string; card: { moduleId: number } }[] };
    };
    expect(placesOf(system.cards.map((report) => ({ ...report, ...report.card })))).toEqual(expected);
    expect(placesOf(JSON.parse((await runHere(['top', '--json', '--once'], env)).out).cards)).toEqual(expected);
    const { out } = await runHere(['smi', '-Q', 'index,module_id,bus_id', '-f', 'csv,noheader'], env);
    expect(out.trim().split('\n').slice(0, 4)).toEqual(expected.map((place) => place.join(', ')));
    const context = await Context.create({
      env: { ...env, UCX_GAUDI_DRIVER: 'emulator' },
      configDirectories: [],
      logSink: () => undefined,
    });
    expect(context.snapshot().cards.map(({ name, label, moduleId }) => [name, label.split(', ')[1], moduleId])).toEqual(
      entries.map((entry) => [`gaudi${entry.index}`, `${entry.bus_id})`, entry.module_id]),
    );
    await context.close();
  });

  it('are refused if the node has fewer cards than the table', async () => {
    const { out, err } = await runHere(['info', '-d'], { GAUDI_MAPPING_TABLE: TABLE, UCX_GAUDI_EMULATOR_CARDS: '2' });
    expect(out + err).toMatch(/GAUDI_MAPPING_TABLE entry [0-3] bus_id \S+ is not a card of this machine/);
  });
});

describe('unused names', () => {
  const suppressed = '(set UCX_WARN_UNUSED_ENV_VARS=n to suppress this warning)';
  const misspelt = {
    UCT_GAUDI_COPY_ENABLE_RCACH: 'try',
    UCT_SOMETHING_ELSE_ENTIRELY: '1',
    UCX_GAUDI_COPY_ENABLE_NIC_SCALEOUT: 'try',
    UCX_TLSS: 'tcp',
  };
  const warnings = [
    `unused environment variable: UCT_GAUDI_COPY_ENABLE_RCACH (maybe: UCX_GAUDI_COPY_RCACHE?) ${suppressed}`,
    `unused environment variable: UCT_SOMETHING_ELSE_ENTIRELY ${suppressed}`,
    `unused environment variable: UCX_GAUDI_COPY_ENABLE_NIC_SCALEOUT (maybe: UCX_GAUDI_COPY_NIC_SCALE_OUT?) ${suppressed}`,
    `unused environment variable: UCX_TLSS (maybe: UCX_TLS?) ${suppressed}`,
  ];
  it('cause warnings with current names', async () => {
    expect(await warningsOf(misspelt, 'native')).toEqual(warnings);
    expect(await warningsOf({ ...misspelt, UCX_WARN_UNUSED_ENV_VARS: 'n' }, 'native')).toEqual([]);
  });

  const { libucp, skipReason } = installedLibucp();
  it.skipIf(skipReason !== undefined)(
    `cause warnings over libucp too, except for those that it reads (${skipReason}) (needs libucp)`,
    async () => {
      const theirs = {
        UCX_IB_NUM_PATHS: '1',
        UCX_MM_HUGETLB_MODE: 'n',
        UCX_SYSV_HUGETLB_MODE: 'n',
        UCX_SEG_SIZE: '8k',
      };
      const almost = { UCX_POSIX_HUGETLB_MOD: 'n' };
      expect(await warningsOf({ ...misspelt, ...theirs, ...almost }, 'libucx')).toEqual([
        ...warnings,
        `unused environment variable: UCX_POSIX_HUGETLB_MOD (maybe: UCX_POSIX_HUGETLB_MODE?) ${suppressed}`,
      ]);
      expect(await warningsOf({ ...misspelt, UCX_WARN_UNUSED_ENV_VARS: 'n' }, 'libucx')).toEqual([]);
    },
  );

  it.skipIf(skipReason !== undefined)(
    `accept libucp's own values, and report those that it does not support (${skipReason}) (needs libucp)`,
    async () => {
      expect(await warningsOf({ UCX_RNDV_SCHEME: 'rkey_ptr', UCX_ZCOPY_THRESH: '4k' }, 'libucx')).toEqual([]);
      // Values by reach exist in later versions: the error names libucp.
      if (libucp?.minor === 13) {
        const error = await failureOf(() => warningsOf({ UCX_RNDV_THRESH: 'intra:8k,inter:16k' }, 'libucx'));
        expect(error).toMatchObject({ code: 'ERR_CONFIG_VALUE', details: { name: 'UCX_RNDV_THRESH' } });
      }
      const absent = libucp?.variables()?.has('UCX_MAX_RMA_RAILS') === false;
      expect(await warningsOf({ UCX_MAX_RMA_RAILS: '2' }, 'libucx')).toEqual(
        absent ? [`UCX_MAX_RMA_RAILS has no effect: UCX ${libucp?.version} lacks it`] : [],
      );
    },
  );
});
