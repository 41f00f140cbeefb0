/** The configuration of ib: values that have a code of verbs. */

import { expect, it } from 'vitest';
import { loadConfig } from '../../../ucs/config/config.ts';
import { IB_CONFIG_TABLE } from './config.ts';

it('UCX_IB_PATH_MTU has the codes of enum ibv_mtu, and is printed as what it is read from', () => {
  const read = (value: string): unknown[] => {
    const config = loadConfig([IB_CONFIG_TABLE], { overrides: { UCX_IB_PATH_MTU: value } });
    const { type } = IB_CONFIG_TABLE.fields.find(({ name }) => name === 'PATH_MTU')!;
    const code = config.get(IB_CONFIG_TABLE).PATH_MTU;
    return [code, type.print!(code as never)];
  };
  expect(['256', '512', '1024', '2048', '4096', 'default'].map(read)).toEqual([
    [1, '256'],
    [2, '512'],
    [3, '1024'],
    [4, '2048'],
    [5, 'default'],
    [5, 'default'],
  ]);
  for (const value of ['0', '128', '8192', '']) {
    expect(() => read(value), value).toThrow(expect.objectContaining({ code: 'ERR_CONFIG_VALUE' }));
  }
});
