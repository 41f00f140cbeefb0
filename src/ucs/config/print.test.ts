import { describe, expect, it } from 'vitest';
import { type ConfigTable, loadConfig } from './config.ts';
import { parseConfigFile } from './file.ts';
import { type ConfigPrintOptions, printConfig } from './print.ts';
import { boolType, uintType } from './value.ts';

interface IbValues {
  readonly SEG: number;
}
interface RcValues extends IbValues {
  readonly FAST: boolean;
  readonly SECRET: boolean;
}
const IB: ConfigTable<IbValues> = {
  prefix: 'IB_',
  fields: [{ name: 'SEG', type: uintType, default: '8', doc: 'Size of segments.' }],
};
const RC: ConfigTable<RcValues> = {
  prefix: 'RC_',
  fields: [
    { name: 'FAST', type: boolType, default: 'y', doc: 'Be fast.', deprecatedAliases: ['UCX_RC_QUICK'] },
    { name: 'SECRET', type: boolType, default: 'n', doc: 'For developers.', hidden: true },
  ],
  subTables: [IB],
};

const text = (options?: ConfigPrintOptions): string =>
  printConfig(loadConfig([RC], { env: { UCX_IB_SEG: '16' } }).entries, options);

describe('printConfig', () => {
  it('prints a line for each field', () => {
    expect(text()).toBe('UCX_RC_FAST=y\nUCX_RC_SEG=16\n');
  });

  it('prints hidden fields and deprecated names', () => {
    expect(text({ hidden: true })).toBe(
      '# UCX_RC_QUICK (deprecated: use UCX_RC_FAST)\nUCX_RC_FAST=y\nUCX_RC_SECRET=n\nUCX_RC_SEG=16\n',
    );
  });

  it('comments defaults out', () => {
    expect(text({ commentDefaults: true })).toBe('# UCX_RC_FAST=y\nUCX_RC_SEG=16\n');
  });

  it('filters by a part of the name', () => {
    expect(text({ filter: 'SEG' })).toBe('UCX_RC_SEG=16\n');
    expect(text({ filter: 'nothing', decorated: true })).toBe('');
  });

  it('decorates', () => {
    expect(text({ decorated: true, filter: 'SEG' })).toBe(
      [
        '# UCX configuration of gaudi-ucx',
        '',
        '#',
        '# Size of segments.',
        '#',
        '# syntax:    an unsigned integer',
        '# default:   8',
        '# source:    environment (UCX_IB_SEG)',
        '# inherits:  UCX_IB_SEG',
        '#',
        'UCX_RC_SEG=16',
        '',
        '',
      ].join('\n'),
    );
  });

  it.each([{}, { decorated: true }, { hidden: true }, { decorated: true, hidden: true, commentDefaults: true }])(
    'with %j can be parsed to the same values',
    (options) => {
      const before = loadConfig([RC], { env: { UCX_IB_SEG: '16', UCX_RC_FAST: 'n' } });
      const files = [parseConfigFile(printConfig(before.entries, options))];
      expect(loadConfig([RC], { files }).get(RC)).toEqual(before.get(RC));
    },
  );
});
