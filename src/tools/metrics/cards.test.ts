/** Metrics of cards: each value under its own name, in its own unit, with the labels of its card. */

import { describe, expect, it } from 'vitest';
import { SCRIPTED_BUSES, scriptedNode } from '../../../test/fixtures/driver/scripted-node.ts';
import { namedCards } from '../../driver/card-names.ts';
import type { DriverNode } from '../../driver/port.ts';
import { HL_INFO_DEVICE_STATUS, HL_INFO_OP } from '../../uapi/index.ts';
import { cardFamilies } from './cards.ts';

const MIB = 2 ** 20;
const [BUS_0, BUS_1] = SCRIPTED_BUSES;

/** Values by metric, in the order of the cards; those of ports are left out. */
function valuesOf(node: DriverNode): Readonly<Record<string, readonly number[]>> {
  const known = cardFamilies(node).filter(({ name, values }) => values.length > 0 && !name.includes('_nic_'));
  return Object.fromEntries(
    known.map(({ name, values }) => [name.slice('habanalabs_'.length), values.map(({ value }) => value)]),
  );
}

describe('a metric', () => {
  it('has the value of its source, in its unit', () => {
    expect(valuesOf(scriptedNode())).toEqual({
      device_up: [1, 1],
      memory_total_bytes: [97_536 * MIB, 97_537 * MIB],
      memory_used_bytes: [36_096 * MIB, 36_098 * MIB],
      memory_free_bytes: [61_440 * MIB, 61_439 * MIB],
      utilization: [37, 38],
      clock_soc_mhz: [1411, 1412],
      power_mW: [345_678, 346_678],
      energy_joules_total: [987_654.321, 987_654.322],
      temperature_onchip: [46.4, 47.4],
      pcie_rx: [4_321_000, 4_322_000],
      pcie_tx: [8_765_000, 8_766_000],
      pending_rows_state: [1, 0],
      pending_rows_with_double_bit_ecc_errors: [3, 4],
      pending_rows_with_single_bit_ecc_errors: [2, 2],
      hard_resets_total: [11, 12],
      compute_resets_total: [23, 24],
    });
  });

  it('is a counter where it only grows', () => {
    const counters = cardFamilies(undefined).filter(({ type }) => type === 'counter');
    expect(counters.map(({ name }) => name)).toEqual([
      'habanalabs_energy_joules_total',
      'habanalabs_hard_resets_total',
      'habanalabs_compute_resets_total',
    ]);
  });

  it('has the index, the device, the bus id and the origin of its card as labels', () => {
    const node = scriptedNode();
    const [up] = cardFamilies(node);
    expect(up).toMatchObject({
      name: 'habanalabs_device_up',
      values: [
        { labels: { card: '0', device: '4', bus_id: BUS_0, emulated: 'false', state: 'operational' }, value: 1 },
        { labels: { card: '1', device: '2', bus_id: BUS_1, emulated: 'false', state: 'operational' }, value: 1 },
      ],
    });
    const [, total] = cardFamilies({ ...node, emulated: true });
    expect(total!.values[1]!.labels).toEqual({ card: '1', device: '2', bus_id: BUS_1, emulated: 'true' });
  });

  it('of a port tells whether it leads to a card, and whether its link is up', () => {
    const node = scriptedNode();
    const links = (minor: number) =>
      node.links!(minor)!.map((link) =>
        link.port === 3 ? { ...link, up: false, peer: { busId: undefined as never, port: 1 } } : link,
      );
    const family = (name: string) => {
      const found = cardFamilies({ ...node, links }).find((each) => each.name === `habanalabs_nic_port_${name}`)!;
      return found.values
        .filter(({ labels }) => labels['card'] === '1')
        .map(({ labels, value }) => [labels['port'], labels['external'], value]);
    };
    expect(family('connected')).toEqual([
      ['1', 'false', 1],
      ['3', 'false', 0],
      ['8', 'true', 1],
    ]);
    expect(family('status')).toEqual([
      ['1', 'false', 0],
      ['8', 'true', 1],
    ]);
  });

  it('is left out where the card refuses its value, and only that one', () => {
    const refused = { [HL_INFO_OP.PCI_COUNTERS]: () => -95, [HL_INFO_OP.POWER]: () => -22 };
    const names = Object.keys(valuesOf(scriptedNode({ answers: refused })));
    const all = Object.keys(valuesOf(scriptedNode()));
    expect(all.filter((name) => !names.includes(name))).toEqual(['power_mW', 'pcie_rx', 'pcie_tx']);
  });

  it('of the firmware is left out of a card in reset, whose other values remain', () => {
    const inReset = {
      [HL_INFO_OP.DEVICE_STATUS]: (_card: number, view: DataView) => {
        HL_INFO_DEVICE_STATUS.encode({ status: 1 }, view);
        return HL_INFO_DEVICE_STATUS.size;
      },
    };
    expect(valuesOf(scriptedNode({ answers: inReset }))).toEqual({
      device_up: [0, 0],
      memory_total_bytes: [97_536 * MIB, 97_537 * MIB],
      memory_used_bytes: [36_096 * MIB, 36_098 * MIB],
      memory_free_bytes: [61_440 * MIB, 61_439 * MIB],
      temperature_onchip: [46.4, 47.4],
      hard_resets_total: [11, 12],
      compute_resets_total: [23, 24],
    });
  });

  it('of a removed card tells only that it is removed; one without an index has none as label', () => {
    const node = scriptedNode();
    const [card] = namedCards(node);
    const families = cardFamilies(node, [
      { ...card!, index: undefined, minor: undefined, entry: undefined, absence: undefined },
    ]);
    expect(families.filter(({ values }) => values.length > 0)).toMatchObject([
      {
        name: 'habanalabs_device_up',
        values: [{ labels: { bus_id: BUS_0, emulated: 'false', state: 'removed' }, value: 0 }],
      },
    ]);
    expect(families[0]!.values[0]!.labels).not.toHaveProperty('card');
    expect(families[0]!.values[0]!.labels).not.toHaveProperty('device');
  });

  it('has no memory in use where more is free than the card has', () => {
    const answers = {
      [HL_INFO_OP.DRAM_USAGE]: (_card: number, view: DataView) => {
        view.setBigUint64(0, 2n ** 50n, true);
        return 16;
      },
    };
    expect(valuesOf(scriptedNode({ answers }))['memory_used_bytes']).toEqual([0, 0]);
  });
});
