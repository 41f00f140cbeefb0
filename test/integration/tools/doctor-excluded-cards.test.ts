/** `gaudi-ucx doctor` on a node with failed cards: it fails for those that programs of its environment open, and only for those. */

import { describe, expect, it } from 'vitest';
import type { Check } from '../../../src/tools/doctor/checks.ts';
import { type RunEnvironment, useNodeCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useNodeCommandLine();
const table = (...entries: readonly (readonly [number, string])[]): string =>
  JSON.stringify(entries.map(([index, bus]) => ({ index, bus_id: `0000:${bus}:00.0` })));

describe('the doctor on a node whose cards 1 and 2 have failed', { timeout: 60_000 }, () => {
  it('fails for a card unless the environment excludes it, and names the variable', async () => {
    expect(cli.run(['node', 'up', '--cards', '4']).code).toBe(0);
    await cli.outputHere(['node', 'fault', '1', 'malfunction']);
    await cli.outputHere(['node', 'fault', '2', 'unplug']);
    const cards = async (env: RunEnvironment): Promise<{ code: number | null; check: Check }> => {
      const { code, out } = await cli.runHere(['doctor', '--json'], env);
      return { code, check: (JSON.parse(out) as Check[]).find(({ name }) => name === 'cards')! };
    };
    const all = await cards({});
    expect(all).toMatchObject({ code: 1, check: { state: 'failure' } });
    for (const [variable, value] of [
      ['UCX_ACC_DEVICES', 'gaudi0,gaudi3'],
      ['UCX_ACC_DEVICES', '^gaudi1,gaudi2'],
      ['HABANA_VISIBLE_DEVICES', '0,3'],
      ['HABANA_VISIBLE_MODULES', '0,3'],
      ['GAUDI_MAPPING_TABLE', table([0, '19'], [1, '34'])],
      ['UCX_TLS', 'tcp,self'],
    ] as const) {
      const { code, check } = await cards({ [variable]: value });
      const of = `${variable}=${value}: ${check.found}`;
      expect({ code, state: check.state, of }).toEqual({ code: 0, state: 'note', of });
      expect(check.found).toMatch(new RegExp(`accel1, .*malfunction.*; excluded by ${variable}$`, 'm'));
      expect(check.found).toMatch(new RegExp(`accel2, .*removed; excluded by ${variable}$`, 'm'));
    }
    for (const [variable, value] of [
      ['UCX_ACC_DEVICES', 'gaudi2'],
      ['HABANA_VISIBLE_DEVICES', '0,2'],
      ['HABANA_VISIBLE_MODULES', '0,2'],
      ['GAUDI_MAPPING_TABLE', table([0, '1a'])],
    ] as const) {
      const { code, check } = await cards({ [variable]: value });
      expect({ code, state: check.state, value }).toEqual({ code: 1, state: 'failure', value });
    }
  });
});
