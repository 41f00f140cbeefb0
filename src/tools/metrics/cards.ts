/**
 * The cards of a node as metrics, under the names of Habana's exporter for Prometheus where it has them. Only control nodes are opened, so that the cards
 * stay available to their owners. Cards of an emulated node have the label `emulated`.
 */

import type { MetricFamily, MetricLabels, MetricValue } from '../../api/snapshot/metrics.ts';
import {
  type ControlDevice,
  DramRowCause,
  type DriverNode,
  getClkRate,
  getDeviceUtilization,
  getDramPendingRows,
  getDramReplacedRows,
  getDramUsage,
  getHwIpInfo,
  getNicPorts,
  getPciCounters,
  getPower,
  getResetCount,
  getTotalEnergyConsumption,
  type NamedCard,
  type NicPort,
  namedCards,
} from '../../hlthunk/index.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { keysOf } from '../../ucs/type/keys.ts';
import { askCard, OPERATIONAL, stateOf } from '../node-access/card.ts';

const MILLIJOULE_PER_JOULE = 1000;
const BYTES_PER_KB = 1000;

/** Values read from a card. */
interface CardReading {
  readonly name: string;
  readonly values: readonly (readonly [CardMetric, number, MetricLabels?])[];
}

type CardMetric =
  | 'habanalabs_device_up'
  | 'habanalabs_memory_total_bytes'
  | 'habanalabs_memory_used_bytes'
  | 'habanalabs_memory_free_bytes'
  | 'habanalabs_utilization'
  | 'habanalabs_clock_soc_mhz'
  | 'habanalabs_power_mW'
  | 'habanalabs_energy_joules_total'
  | 'habanalabs_temperature_onchip'
  | 'habanalabs_pcie_rx'
  | 'habanalabs_pcie_tx'
  | 'habanalabs_pending_rows_state'
  | 'habanalabs_pending_rows_with_double_bit_ecc_errors'
  | 'habanalabs_pending_rows_with_single_bit_ecc_errors'
  | 'habanalabs_hard_resets_total'
  | 'habanalabs_compute_resets_total'
  | 'habanalabs_nic_port_connected'
  | 'habanalabs_nic_port_status';

const METRICS: Readonly<Record<CardMetric, readonly ['gauge' | 'counter', string]>> = {
  habanalabs_device_up: [
    'gauge',
    '1 if the card is operational, otherwise 0; the label state has the state of the card',
  ],
  habanalabs_memory_total_bytes: ['gauge', 'HBM for users in bytes'],
  habanalabs_memory_used_bytes: ['gauge', 'HBM in use in bytes'],
  habanalabs_memory_free_bytes: ['gauge', 'Free HBM in bytes'],
  habanalabs_utilization: ['gauge', 'Busy time of the card in percent'],
  habanalabs_clock_soc_mhz: ['gauge', 'Clock of the card in MHz'],
  habanalabs_power_mW: ['gauge', 'Power in milliwatt'],
  habanalabs_energy_joules_total: ['counter', 'Energy in joule since the driver was loaded'],
  habanalabs_temperature_onchip: ['gauge', 'Temperature in degrees Celsius'],
  habanalabs_pcie_rx: ['gauge', 'Bytes per second over PCIe into the card'],
  habanalabs_pcie_tx: ['gauge', 'Bytes per second over PCIe out of the card'],
  habanalabs_pending_rows_state: [
    'gauge',
    '1 if rows of HBM with ECC errors are to be replaced at the next boot, otherwise 0',
  ],
  habanalabs_pending_rows_with_double_bit_ecc_errors: ['gauge', 'Rows of HBM replaced after a double-bit ECC error'],
  habanalabs_pending_rows_with_single_bit_ecc_errors: ['gauge', 'Rows of HBM replaced after single-bit ECC errors'],
  habanalabs_hard_resets_total: ['counter', 'Hard resets since the driver was loaded'],
  habanalabs_compute_resets_total: ['counter', 'Compute resets since the driver was loaded'],
  habanalabs_nic_port_connected: ['gauge', '1 if a NIC port leads to a card or out of the server, otherwise 0'],
  habanalabs_nic_port_status: ['gauge', 'Link of a connected NIC port: 1 is up, 0 is down'],
};

/** Metric families, including those without values. @param cards by logical index */
export function cardFamilies(
  node: DriverNode | undefined,
  cards: readonly NamedCard[] = node === undefined ? [] : namedCards(node),
): MetricFamily[] {
  const values = new Map<CardMetric, MetricValue[]>();
  for (const [name, value] of node === undefined ? [] : cardValues(node, cards)) {
    const list = values.get(name) ?? [];
    values.set(name, list);
    list.push(value);
  }
  return keysOf(METRICS).map((name) => {
    const [type, help] = METRICS[name];
    return { name, type, help, values: values.get(name) ?? [] };
  });
}

/** The values of all cards, with their names; for a removed card, its state. */
function cardValues(node: DriverNode, cards: readonly NamedCard[]): (readonly [CardMetric, MetricValue])[] {
  return cards.flatMap(({ index, minor, busId, entry, absence = 'removed' }) => {
    const answer = entry && askCard(node, entry.minor, (control) => readCard(node, control));
    const { state, card } = answer ?? { state: absence, card: undefined };
    const labels = {
      ...(index !== undefined && { card: String(index) }),
      ...(minor !== undefined && { device: String(minor) }),
      bus_id: busId,
      emulated: String(node.emulated),
    };
    const up = ['habanalabs_device_up', state === OPERATIONAL ? 1 : 0, { state }] as const;
    return [up, ...(card?.values ?? [])].map(([name, value, more]) => {
      return [name, { labels: { ...labels, ...more }, value }] as const;
    });
  });
}

function readCard(node: DriverNode, control: ControlDevice): CardReading {
  const info = getHwIpInfo(control);
  const total = Number(info.dramSize);
  const free = Number(getDramUsage(control).dramFreeMem);
  const resets = getResetCount(control);
  const temperature = node.temperature?.(control.minor);
  const ports = getNicPorts(control, info, node) ?? [];
  return {
    name: info.cardName,
    values: [
      ['habanalabs_memory_total_bytes', total],
      ['habanalabs_memory_used_bytes', Math.max(0, total - free)],
      ['habanalabs_memory_free_bytes', free],
      ['habanalabs_hard_resets_total', resets.hardResetCnt],
      ['habanalabs_compute_resets_total', resets.softResetCnt],
      ...(temperature === undefined ? [] : ([['habanalabs_temperature_onchip', temperature]] as const)),
      ...ports.flatMap(portValues),
      ...(stateOf(control) === OPERATIONAL ? firmwareValues(control) : []),
    ],
  };
}

/** The values of a port: unknown ones are omitted, and a port without a cable has no link. */
function portValues({ port, external, linkUp, connected }: NicPort): CardReading['values'] {
  const place = { port: String(port), external: String(external) };
  return [
    ...(connected === undefined ? [] : ([['habanalabs_nic_port_connected', connected ? 1 : 0, place]] as const)),
    ...(linkUp === undefined || connected === false
      ? []
      : ([['habanalabs_nic_port_status', linkUp ? 1 : 0, place]] as const)),
  ];
}

/** Values from the firmware. Queries that a card does not support fail; a card in reset fails all. */
function firmwareValues(control: ControlDevice): (readonly [CardMetric, number])[] {
  const read = (values: () => readonly (readonly [CardMetric, number])[]): ReturnType<typeof values> => {
    try {
      return values();
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return [];
    }
  };
  return [
    ...read(() => [['habanalabs_utilization', getDeviceUtilization(control)]]),
    ...read(() => [['habanalabs_clock_soc_mhz', getClkRate(control).curClkRateMhz]]),
    ...read(() => [['habanalabs_power_mW', Number(getPower(control))]]),
    ...read(() => [
      ['habanalabs_energy_joules_total', Number(getTotalEnergyConsumption(control)) / MILLIJOULE_PER_JOULE],
    ]),
    ...read(() => {
      const { rxThroughput, txThroughput } = getPciCounters(control);
      return [
        ['habanalabs_pcie_rx', Number(rxThroughput) * BYTES_PER_KB],
        ['habanalabs_pcie_tx', Number(txThroughput) * BYTES_PER_KB],
      ];
    }),
    ...read(() => [['habanalabs_pending_rows_state', getDramPendingRows(control) === 0 ? 0 : 1]]),
    ...read(() => {
      const rows = getDramReplacedRows(control);
      const replacedFor = (cause: number): number =>
        rows.filter(({ replacedRowCause }) => replacedRowCause === cause).length;
      return [
        ['habanalabs_pending_rows_with_double_bit_ecc_errors', replacedFor(DramRowCause.DOUBLE_ECC_ERR)],
        ['habanalabs_pending_rows_with_single_bit_ecc_errors', replacedFor(DramRowCause.MULTI_SINGLE_ECC_ERR)],
      ];
    }),
  ];
}
