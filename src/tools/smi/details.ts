/** The output of `smi -q`, in the sections of hl-smi, and of `smi -L`. */

import { indexText, UNKNOWN, valueText } from './queries.ts';
import type { SmiCard } from './smi-card.ts';
import { linkText, sideText } from './smi-table.ts';

type Field = readonly [name: string, value: string | number | undefined];

/** Sections by their names for `-d`. FAN and similar sections exist for scripts written for other cards; Gaudi cards have no values for them. */
const SECTIONS: Readonly<Record<string, readonly [title: string, fields: (card: SmiCard) => readonly Field[]]>> = {
  PRODUCT: [
    'Product',
    (card) => [
      ['Product Name', card.name],
      ['Serial Number', undefined],
      ['Module ID', card.moduleId],
      ['Driver Version', card.driverVersion],
      ['Firmware Version', card.firmware],
      ['Preboot Version', card.preboot],
      ['State', card.state],
      ['Hard Resets', card.hardResets],
      ['Compute Resets', card.computeResets],
    ],
  ],
  BUS: [
    'PCI',
    (card) => [
      ['Bus Id', card.busId],
      ['NUMA Node', card.numaNode],
    ],
  ],
  MEMORY: ['Memory Usage', (card) => ['total', 'used', 'free'].map((name) => queried(card, name, `memory.${name}`))],
  CLOCK: ['Clocks', (card) => [queried(card, 'SoC', 'clocks.current.soc'), queried(card, 'Max SoC', 'clocks.max.soc')]],
  TEMPERATURE: ['Temperature', (card) => [queried(card, 'AIP', 'temperature.aip')]],
  POWER: [
    'Power',
    (card) => [
      queried(card, 'Power Draw', 'power.draw'),
      queried(card, 'Power Limit', 'power.max'),
      queried(card, 'Throttled by Power', 'stats.violation.power'),
      queried(card, 'Throttled by Temperature', 'stats.violation.thermal'),
    ],
  ],
  FAN: ['Fan', () => [['Speed', undefined]]],
  NET: ['Network', (card) => portsOf(card)],
  ROW_REPLACEMENT: ['Row Replacement', (card) => [['Pending', yesOrNo(card.hasPendingRows)]]],
};

/** Names of the sections. */
export const SECTION_NAMES: readonly string[] = Object.keys(SECTIONS);

/** The lines of `-q`. @param names of the sections to print */
export function detailLines(cards: readonly SmiCard[], names: readonly string[], time: string): string[] {
  const lines = [
    '================ GAUDI-UCX SMI LOG ================',
    '',
    field(0, ['Timestamp', time]),
    field(0, ['Attached AIPs', cards.length]),
  ];
  for (const card of cards) {
    lines.push(`[${indexText(card)}] AIP ${card.minor === undefined ? '' : `(accel${card.minor}) `}${card.busId}`);
    for (const name of names) {
      const [title, fields] = SECTIONS[name]!;
      lines.push(`${' '.repeat(8)}${title}`, ...fields(card).map((each) => field(16, each)));
    }
  }
  return lines;
}

/** The lines of `-L`. */
export function listLines(cards: readonly SmiCard[]): string[] {
  return cards.map((card) => {
    const { name, busId, moduleId, state } = card;
    return `AIP ${indexText(card)}: ${name ?? UNKNOWN} (bus id: ${busId}, module id: ${moduleId ?? UNKNOWN}, uuid: ${UNKNOWN}, ${state})`;
  });
}

/** The lines of `--fw-versions`. */
export function firmwareLines(cards: readonly SmiCard[]): string[] {
  return cards.map((card) => {
    const { busId, firmware, preboot } = card;
    return `AIP ${indexText(card)} (bus id: ${busId}): firmware ${firmware ?? UNKNOWN}, preboot ${preboot ?? UNKNOWN}`;
  });
}

function portsOf({ ports }: SmiCard): Field[] {
  if (ports === undefined) return [['Ports', undefined]];
  return ports.map((each) => {
    const netdev = each.netdev === undefined ? '' : `, ${each.netdev}`;
    return [`Port ${each.port}`, `${linkText(each)}, ${sideText(each)}${netdev}`];
  });
}

function queried(card: SmiCard, label: string, name: string): Field {
  return [`${label[0]!.toUpperCase()}${label.slice(1)}`, valueText(card, name)];
}

function yesOrNo(value: boolean | undefined): string | undefined {
  if (value === undefined) return undefined;
  return value ? 'Yes' : 'No';
}

function field(indent: number, [name, value]: Field): string {
  return `${' '.repeat(indent)}${name.padEnd(40 - indent)}: ${value ?? UNKNOWN}`;
}
