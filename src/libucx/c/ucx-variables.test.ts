/** The variables of C UCX: every name of the real lists is a field, is without meaning, or is refused; none is called unused. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import { ROOT } from '../../../test/fixtures/tools/built.ts';
import { CONFIG_TABLES } from '../../assembly/program/config.ts';
import { type Config, loadConfig } from '../../ucs/config/config.ts';
import { LogLevel } from '../../ucs/debug/log.ts';
import type { Libucp } from './library.ts';
import { warnOfUnused } from './ucp-configuration.ts';
import {
  rejectUnignorable,
  UCX_VARIABLE_GROUPS,
  ucxVariable,
  ucxVariableNamed,
  ucxVariableNames,
} from './ucx-variables.ts';

/** Names that ucx_info of UCX prints. */
const NAMES = readFileSync(join(ROOT, 'test/fixtures/ucx-variables.txt'), 'utf8')
  .split('\n')
  .filter((line) => line.startsWith('UCX_'));

const read = (env: Readonly<Record<string, string>>): Config => loadConfig(CONFIG_TABLES, { env });
/** Variables that are read before the configuration exists. */
const isField = (name: string): boolean => read({ [name]: '', UCX_WARN_UNUSED_ENV_VARS: 'n' }).unused.length === 0;

describe('the variables of C UCX', () => {
  it('are all fields, without meaning, or refused', () => {
    expect(NAMES.length).toBeGreaterThan(700);
    const unknown = NAMES.filter((name) => {
      if (ucxVariableNamed(name) !== undefined) return false;
      try {
        return !isField(name);
      } catch {
        // A field whose type takes no empty value.
        return false;
      }
    });
    expect(unknown).toEqual([]);
  });

  it('are in one group, which is not a field, and each with a reason', () => {
    const names = UCX_VARIABLE_GROUPS.flatMap((group) => group.names);
    expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([]);
    const fields = new Set(
      read({}).entries.flatMap(({ name, inherits, field }) => [
        name.slice(4),
        ...inherits.map((each) => each.slice(4)),
        ...(field.aliases ?? []),
      ]),
    );
    expect(names.filter((name) => fields.has(name))).toEqual([]);
    expect(UCX_VARIABLE_GROUPS.filter(({ reason }) => reason === '')).toEqual([]);
  });

  it.each(['TSL', 'CUDA_', 'MEMTRACK_LIMITS', 'RNDV_TRESH'])('do not have %s', (name) => {
    expect(ucxVariable(name)).toBeUndefined();
  });

  it.each([
    ['UCX_ATOMIC_MODE', 'device', 'guess'],
    ['UCX_IB_SUBNET_PREFIX', 'fe80::', ''],
    ['UCX_RC_ROCE_LOCAL_SUBNET', 'y', 'N'],
    ['UCX_RC_VERBS_ROCE_SUBNETS', '10.0.0.0/8', 'all'],
    ['UCX_IB_GPU_DIRECT_RDMA', 'n', 'try'],
    ['UCX_MEMTRACK_LIMIT', '1g', 'inf'],
  ])('%s=%s is rejected with the reason, %j is not', (name, value, harmless) => {
    expect(() => rejectUnignorable(read({ [name]: value }), true)).toThrow(
      expect.objectContaining({
        code: 'ERR_UNSUPPORTED',
        message: expect.stringMatching(
          new RegExp(`^${name}=\\S+ is not supported by engine native: .*: .*; UCX_ENGINE=libucx supports it$`),
        ),
      }),
    );
    rejectUnignorable(read({ [name]: harmless }), true);
  });

  it('are rejected in one error, and those of RDMA devices only where such devices are used', () => {
    const both = read({ UCX_RC_ROCE_LOCAL_SUBNET: 'y', UCX_MEMTRACK_LIMIT: '1g' });
    const rejection = (usesRdma: boolean): unknown => {
      return expect.objectContaining({
        code: 'ERR_UNSUPPORTED',
        message: expect.stringMatching(
          usesRdma
            ? /^2 problems: UCX_RC_ROCE_LOCAL_SUBNET=y is not supported .*; UCX_MEMTRACK_LIMIT=1g/
            : /^UCX_MEMTRACK_LIMIT=1g/,
        ),
      });
    };
    for (const usesRdma of [true, false]) expect(() => rejectUnignorable(both, usesRdma)).toThrow(rejection(usesRdma));
    rejectUnignorable(read({ UCX_IB_ROCE_LOCAL_SUBNET: 'y', UCX_ATOMIC_MODE: 'device' }), false);
  });

  it('are all names that a hint may have', () => {
    const { entries } = read({});
    const hinted = new Set([
      ...ucxVariableNames(),
      ...entries.flatMap(({ name, inherits, field }) => [
        name,
        ...inherits,
        ...(field.aliases ?? []).map((each) => `UCX_${each}`),
      ]),
    ]);
    expect(NAMES.filter((name) => !hinted.has(name))).toEqual([]);
  });

  it.each([
    ['UCX_MM_FIFO_SIZE', 'UCX_POSIX_FIFO_SIZE', '512'],
    ['UCX_SM_BW', 'UCX_CMA_BW', '1GBs'],
    ['UCX_SCOPY_BW', 'UCX_CMA_BW', '1GBs'],
    ['UCX_CM_REUSEADDR', 'UCX_TCP_CM_REUSEADDR', 'n'],
    ['UCX_IB_TX_QUEUE_LEN', 'UCX_RC_TX_QUEUE_LEN', '64'],
  ])('%s sets %s', (name, field, value) => {
    const { entries, unused } = read({ [name]: value });
    expect(entries.find((entry) => entry.name === field)).toMatchObject({ setBy: name });
    expect(unused).toEqual([]);
  });

  it.each(['UCX_RC_VERBS_TIMEOUT', 'UCX_RC_TIMEOUT'])('%s sets the field', (name) => {
    const { entries } = read({ [name]: '2s' });
    expect(entries.find((entry) => entry.name === 'UCX_RC_TIMEOUT')).toMatchObject({ value: 2e9, setBy: name });
  });

  it('have the more specific name above the other', () => {
    const { entries } = read({ UCX_RC_VERBS_TIMEOUT: '2s', UCX_RC_TIMEOUT: '3s', UCX_MAX_RMA_LANES: '4' });
    const numberOf = (name: string): unknown => entries.find((entry) => entry.name === name)?.value;
    expect([numberOf('UCX_RC_TIMEOUT'), numberOf('UCX_MAX_RMA_RAILS')]).toEqual([2e9, 4]);
  });

  it('of another version of UCX are no typos over libucp, misspelt names are', () => {
    const { log, records } = createTestLog();
    const variables = new Set(['UCX_TLS', 'UCX_RC_VERBS_PKEY']);
    const libucp = { version: '1.13.1', variables: () => variables } as unknown as Libucp;
    const env = { UCX_DYNAMIC_TL_SWITCH_INTERVAL: '1s', UCX_IB_PKEY: '0x1', UCX_TSL: 'tcp' };
    warnOfUnused(libucp, read(env), log);
    expect(records.filter(({ level }) => level <= LogLevel.WARN).map(({ message }) => message)).toEqual([
      'UCX_DYNAMIC_TL_SWITCH_INTERVAL has no effect: UCX 1.13.1 lacks it',
      expect.stringMatching(/^unused environment variable: UCX_TSL \(maybe: UCX_TLS\?\)/),
    ]);
  });
});
