/** The text of `info --blocks`: families of blocks, and registers. */

import { expect, it } from 'vitest';
import { type BlocksReport, blocksOptions, blocksText } from './blocks.ts';

const CARD = { index: 1, minor: 2, busId: '0000:0b:00.0', cardName: 'HL-205', emulated: true };
const rows = (report: Partial<BlocksReport>, all = false): string[] =>
  blocksText({ ...CARD, ...report }, all)
    .split('\n')
    .slice(2)
    .map((line) => line.replaceAll(/ {2,}/g, ' | '));

it('blocks that differ by number only have one row', () => {
  const block = (name: string, byteLength: number, registers: number, refusal?: string) => {
    return { name, byteLength, registers, refusal } as unknown as NonNullable<BlocksReport['blocks']>[number];
  };
  const blocks = [
    block('NIC0_UMR0', 4096, 0),
    block('NIC0_UMR1', 4096, 0),
    block('NIC1_UMR7', 4096, 0),
    block('NIC9_UMR0', 8192, 1),
    block('TPC0', 0, 12, 'not for users'),
    block('DMA', 4096, 12),
  ];
  expect(rows({ blocks })).toEqual([
    expect.stringMatching(/^# blocks \| number \| size \| content$/),
    '# NIC0_UMR0 .. NIC1_UMR7 | 3 | 4.0 KiB | memory',
    '# NIC9_UMR0 | 1 | 8.0 KiB | 1 registers',
    '# TPC0 | 1 | - | not for users',
    '# DMA | 1 | 4.0 KiB | 12 registers',
  ]);
});

it('registers have their offset, name and value; those that are 0 only if asked for', () => {
  const registers = [
    { offset: 0x10, name: 'CFG', value: 0xabc },
    { offset: 0x14, name: 'STATUS', value: 0 },
    { offset: 0x1f0, name: undefined, value: 0xffff_ffff },
  ] as unknown as NonNullable<BlocksReport['registers']>;
  const shown = [
    expect.stringMatching(/^# offset \| register \| value$/),
    '# 0x00010 | CFG | 0x00000abc',
    '# 0x001f0 | - | 0xffffffff',
  ];
  expect(rows({ block: 'NIC0', registers })).toEqual([...shown, '# 1 of 3 are 0 (-a shows them)']);
  expect(rows({ block: 'NIC0', registers }, true)).toEqual([
    ...shown.slice(0, 2),
    '# 0x00014 | STATUS | 0x00000000',
    shown[2],
  ]);
  expect(blocksText({ ...CARD, block: 'NIC0', registers }, true)).toMatch(/^# .*, emulated: HL-205, block NIC0\n/);
});

it('a block is optional', () => {
  expect([blocksOptions(true, '0'), blocksOptions('nic', '1')]).toEqual([
    { block: undefined, card: '0' },
    { block: 'nic', card: '1' },
  ]);
});
