/** Lists of cards in every tool: UCX_ACC_DEVICES, HABANA_VISIBLE_DEVICES and HABANA_VISIBLE_MODULES choose cards, which keep their names and indices. */

import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../../fixtures/tools/built.ts';
import { useCommandLine } from '../../fixtures/tools/command-line.ts';

const { run, output, runHere, outputHere } = useCommandLine();
const FILE = join(ROOT, 'package.json');
const FOUR = { UCX_GAUDI_EMULATOR_CARDS: '4' };

interface Demo {
  readonly oneCard: { readonly hops: readonly { readonly transport: string }[] };
  readonly exchange?: { readonly cards: readonly number[]; readonly rounds: readonly { readonly transport: string }[] };
}

interface Explained {
  readonly sizes: readonly { readonly winner?: { readonly transport: string } }[];
}

/** The module id of an emulated card. */
async function moduleOf(card: number): Promise<string> {
  return [...(await outputHere(['info', '-s'], FOUR)).matchAll(/^#\s+module id: (\d)$/gm)][card]![1]!;
}

async function winnerOf(args: readonly string[], env: Readonly<Record<string, string>>): Promise<string | undefined> {
  const { sizes } = JSON.parse(
    await outputHere(['explain', '--size', '64K', '--json', ...args], { ...FOUR, ...env }),
  ) as Explained;
  return sizes[0]!.winner?.transport;
}

describe('a list of cards', { timeout: 120_000 }, () => {
  it.each([
    ['UCX_ACC_DEVICES', 'gaudi3', 3],
    ['UCX_ACC_DEVICES', '^gaudi0,gaudi2,gaudi3', 1],
    ['HABANA_VISIBLE_DEVICES', '2', 2],
    ['HABANA_VISIBLE_MODULES', 'module', 1],
  ])('in %s counts in explain, info -d and demo (%s)', async (variable, text, card) => {
    const env = { [variable]: text === 'module' ? await moduleOf(card) : text };
    expect(await winnerOf(['--remote', 'gaudi'], env)).toBe(`gaudi_cpy/gaudi${card}`);
    expect(await winnerOf(['--remote', `gaudi:${card}`], env)).toBe(`gaudi_cpy/gaudi${card}`);
    const other = await runHere(['explain', '--remote', 'gaudi:0', '--size', '8'], { ...FOUR, ...env });
    expect(other).toEqual({
      code: 1,
      out: '',
      err: expect.stringContaining(`0 is not an open card (open cards: ${card})`),
    });
    const blocks = (await outputHere(['info', '-d'], { ...FOUR, ...env })).split(/^#\s+Transport: /m);
    const used = blocks.filter((block) => /^gaudi_/.test(block) && !/excluded by/.test(block));
    expect(used.map((block) => /Device: (.*)$/m.exec(block)?.[1])).toEqual([`gaudi${card}`, `gaudi${card}`]);
    const { oneCard, exchange } = JSON.parse(output(['demo', FILE, '--json'], { ...FOUR, ...env })) as Demo;
    const hops = oneCard.hops.slice(0, 3).map(({ transport }) => transport);
    expect(hops).toEqual(hops.map(() => `gaudi_cpy/gaudi${card}`));
    expect(exchange).toBeUndefined();
  });

  it('counts in the exchange of demo, whose cards keep their names', () => {
    const env = { ...FOUR, UCX_ACC_DEVICES: 'gaudi1,gaudi3' };
    const { exchange } = JSON.parse(output(['demo', FILE, '--json'], env)) as Demo;
    expect(exchange!.cards).toEqual([1, 3]);
    for (const { transport } of exchange!.rounds) expect(transport).toMatch(/^gaudi_ipc\/gaudi[13]$/);
    const few = run(['demo', FILE, '--cards', '4'], env);
    expect(few.err).toBe(
      'gaudi-ucx: argument cards must not exceed the number of available cards (2), got 4 (ERR_INVALID_PARAM)\n',
    );
  });

  it('is divided between the two processes of explain', () => {
    const args = ['explain', '--local', 'gaudi', '--remote', 'gaudi', '--peer', 'process', '--size', '1M'];
    const text = output(args, { ...FOUR, UCX_ACC_DEVICES: 'gaudi1,gaudi3' });
    expect(text).toMatch(/not gaudi_ipc\/gaudi3: has cards of another emulated node/);
    for (const card of [0, 1, 2]) expect(text).toContain(`not gaudi${card}: excluded by UCX_ACC_DEVICES`);
    const one = run(args, { ...FOUR, UCX_ACC_DEVICES: 'gaudi1' });
    expect(one.err).toBe(
      'gaudi-ucx: argument remote needs a card besides the card of the local memory; available cards: gaudi1, got "gaudi" (ERR_INVALID_PARAM)\n',
    );
    const out = run([...args, '--remote', 'gaudi:0'], { ...FOUR, UCX_ACC_DEVICES: 'gaudi1,gaudi3' });
    expect(out.err).toContain('available cards: gaudi1, gaudi3, got "gaudi:0"');
  });

  it('hides no card in info -s and top', async () => {
    const env = { ...FOUR, UCX_ACC_DEVICES: 'gaudi1' };
    expect((await outputHere(['info', '-s'], env)).match(/^# card \d \(accel\d, /gm)).toHaveLength(4);
    expect((await outputHere(['top', '--once'], env)).match(/^ +\d +\d operational /gm)).toHaveLength(4);
  });
});
