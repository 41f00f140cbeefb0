/** The tools on emulated cards of each generation, by UCX_GAUDI_EMULATOR_ASIC: they name the card, choose the same transports, and move checked data. */

import { describe, expect, it } from 'vitest';
import { useCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useCommandLine();

/** Generation, and what smi calls its card. */
const GENERATIONS = [
  ['gaudi', 'HL205'],
  ['gaudi2', 'HL225'],
  ['gaudi3', 'HL325'],
] as const;

describe.each(GENERATIONS)('on emulated cards of %s', { timeout: 120_000 }, (asic, card) => {
  const env = { UCX_GAUDI_EMULATOR_ASIC: asic };
  const rowsOf = (text: string): string[] => text.split('\n').filter((line) => /^ +\d/.test(line));

  it('info, smi, metrics and top name the card', async () => {
    expect(await cli.outputHere(['smi', '-L'], env)).toMatch(new RegExp(`^AIP 1: ${card} \\(bus id: `, 'm'));
    expect(await cli.outputHere(['smi'], env)).toContain(card);
    expect(await cli.outputHere(['metrics', '--once'], env)).toMatch(/^# HELP ucx_process_answers /m);
    expect(await cli.outputHere(['info', '-d'], env)).toContain('gaudi1');
    expect(await cli.outputHere(['top', '--once', '--interval', '10ms'], env)).toMatch(
      /^emulated node of this process: /m,
    );
  });

  it('explain chooses gaudi_cpy between host memory and HBM', async () => {
    const out = await cli.outputHere(['explain', '--remote', 'gaudi', '--size', '64k', '--json'], env);
    const { sizes } = JSON.parse(out) as {
      readonly sizes: readonly { readonly winner: { readonly transport: string } }[];
    };
    expect(sizes.map(({ winner }) => winner.transport)).toEqual([expect.stringMatching(/^gaudi_cpy/)]);
  });

  it.each([
    ['ucp_put_bw', 'host,gaudi'],
    ['ucp_get', 'gaudi,host'],
    ['tag_bw', 'gaudi'],
    ['ucp_am_bw', 'gaudi'],
    ['ucp_add', 'host,gaudi'],
  ])('perftest %s moves memory of %s in a loopback', (test, memory) => {
    const size = test === 'ucp_add' ? '8' : '100000';
    const args = ['perftest', '-l', '-t', test, '-m', memory, '-s', size, '-n', '20', '-w', '2', '-f'];
    expect(rowsOf(cli.output(args, env)).length).toBeGreaterThan(0);
  });

  it('perftest moves checked blocks between the cards of ranks, as lists', () => {
    const args = ['perftest', '--pattern', 'all-to-all', '--ranks', '2', '--batch', '4', '-s', '70000', '-m', 'gaudi'];
    const rows = rowsOf(cli.output([...args, '-n', '4', '-V'], env));
    // The errors of the check are in the column before the last.
    expect(rows.map((row) => row.trim().split(/ +/)[10])).toEqual(['0']);
  });

  it('coll reduces checked memory of the cards of ranks', () => {
    const args = ['coll', '--test', 'all_reduce', '--size', '64K', '--ranks', '2', '-m', 'gaudi', '-n', '2', '-w', '0'];
    const rows = rowsOf(cli.output(args, env)).map((row) => row.trim().split(/ +/));
    // The column of wrong ranks.
    expect(rows.map((row) => [row[0], row[8]])).toEqual([['65536', '0']]);
  });
});
