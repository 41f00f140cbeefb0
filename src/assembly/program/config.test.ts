/** The values of the tables of the composition root: which texts they accept, and how they are printed. */

import { describe, expect, it } from 'vitest';
import { GAUDI_CONFIG_TABLE, INSPECT_CONFIG_TABLE } from './config.ts';
import { ProgramConfig } from './program-config.ts';

const CLEAN = { env: {}, configDirectories: [] };

/** The values of the table of cards with one field set. */
function gaudi(name: string, value: string) {
  return ProgramConfig.read(CLEAN, { [name]: value }).get(GAUDI_CONFIG_TABLE);
}

const REJECTED: unknown = expect.objectContaining({ code: 'ERR_CONFIG_VALUE' });

describe('UCX_GAUDI_DRIVER', () => {
  it('has the path of a socket as it is written, which is absolute', () => {
    expect(gaudi('GAUDI_DRIVER', ' Emulator:/Srv/Node.SOCK ').DRIVER).toEqual({ socket: '/Srv/Node.SOCK' });
    expect(gaudi('GAUDI_DRIVER', 'KERNEL').DRIVER).toBe('kernel');
    for (const value of ['emulator:', 'emulator:node.sock', 'emulators:/srv/node.sock', '/srv/node.sock']) {
      expect(() => gaudi('GAUDI_DRIVER', value), value).toThrow(REJECTED);
    }
  });
});

describe('the emulated node', () => {
  it('has one to eight cards', () => {
    expect(['1', '8'].map((value) => gaudi('GAUDI_EMULATOR_CARDS', value).EMULATOR_CARDS)).toEqual([1, 8]);
    for (const value of ['0', '9']) expect(() => gaudi('GAUDI_EMULATOR_CARDS', value)).toThrow(REJECTED);
  });

  it('has up to eight RDMA devices', () => {
    expect(['0', '8'].map((value) => gaudi('GAUDI_EMULATOR_NICS', value).EMULATOR_NICS)).toEqual([0, 8]);
    expect(() => gaudi('GAUDI_EMULATOR_NICS', '9')).toThrow(REJECTED);
  });
});

describe('UCX_DEBUG_SIGNO', () => {
  it('is a signal, or 0 for none, and is printed as what it is read from', () => {
    const read = (value: string): unknown[] => {
      const config = ProgramConfig.read(CLEAN, { DEBUG_SIGNO: value });
      const printed = config.get('DEBUG_SIGNO');
      return [
        config.get(INSPECT_CONFIG_TABLE).DEBUG_SIGNO,
        ProgramConfig.read(CLEAN, { DEBUG_SIGNO: printed }).get('DEBUG_SIGNO'),
      ];
    };
    expect(read('0')).toEqual(['none', '0']);
    expect(read('USR1')).toEqual(['SIGUSR1', expect.stringMatching(/USR1$/)]);
    const defaults = INSPECT_CONFIG_TABLE.fields.find(({ name }) => name === 'DEBUG_SIGNO')!;
    expect(defaults.type.print!('none' as never)).toBe('0');
  });
});
