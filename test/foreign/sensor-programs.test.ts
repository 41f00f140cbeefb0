/** sensors, Prometheus' node exporter, bubblewrap and the tools of this package tell the same about one node. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEmulatedNode, placesOf } from '../../src/emulator/index.ts';
import { TestNodeServer } from '../fixtures/processes/node-server.ts';
import { MAIN } from '../fixtures/tools/command-line.ts';
import { deviceNodesSkipReason, KERNEL } from '../fixtures/tools/run-command.ts';
import { outputOf, programSkipReason } from './programs.ts';

const CARDS = 2;
const PLACES = placesOf(CARDS, []);
const GENERATIONS = ['gaudi', 'gaudi2', 'gaudi3'] as const;
/** Added to a temperature of the second card, which then differs from that of the first card. */
const OFFSET = 7000;

const nodesReason = deviceNodesSkipReason();
const FOLDERS = PLACES.map(({ pciPath, minor }) => `/sys/devices/${pciPath}/hwmon/hwmon${100 + minor}`);

describe.each(GENERATIONS)('the sensors of %s', (asic) => {
  let server: TestNodeServer;
  let node: readonly string[];
  /** The numbers of each card in hwmon and sysfs, by file. */
  let read: readonly Readonly<Record<string, number>>[];

  beforeAll(async () => {
    if (nodesReason !== undefined) return;
    server = await TestNodeServer.start({ asic, cards: CARDS });
    node = ['--socket', server.socketPath];
    outputOf(node, ['sh', '-c', `echo ${OFFSET} > ${FOLDERS[1]}/temp1_offset`]);
    read = PLACES.map(({ busId, minor }) => {
      const command = `cd ${FOLDERS[minor]} && grep -H . *_input /sys/bus/pci/devices/${busId}/clk_cur_freq_mhz`;
      const lines = outputOf(node, ['sh', '-c', command]).trim().split('\n');
      return Object.fromEntries(
        lines.map((line) => [
          line.slice(line.lastIndexOf('/') + 1, line.lastIndexOf(':')),
          Number(line.slice(line.lastIndexOf(':') + 1)),
        ]),
      );
    });
  });
  afterAll(async () => {
    await server?.stop();
  });

  it.skipIf(nodesReason !== undefined)('are those of the description (needs root and FUSE)', () => {
    const described = createEmulatedNode({ asic, cards: CARDS, dmaThreads: 0 });
    for (const { minor } of PLACES) {
      const offset = minor === 1 ? OFFSET : 0;
      expect(read[minor]!['temp1_input']! - offset).toBe(1000 * described.temperature(minor)!);
      expect(Object.keys(read[minor]!).sort()).toEqual([
        'clk_cur_freq_mhz',
        'curr1_input',
        'in0_input',
        'power1_input',
        'temp1_input',
        'temp2_input',
      ]);
    }
    described.close();
  });

  it.skipIf(nodesReason !== undefined)(
    'are what smi and metrics print, over device nodes and a socket (needs root and FUSE)',
    () => {
      const query = 'temperature.aip,power.draw,clocks.current.soc,memory.used';
      const smi = outputOf(node, [process.execPath, MAIN, 'smi', '-Q', query, '-f', 'csv,noheader,nounits'], KERNEL);
      const rows = smi
        .trim()
        .split('\n')
        .map((line) => line.split(',').map(Number));
      const metrics = outputOf(node, [process.execPath, MAIN, 'metrics', '--once'], KERNEL);
      for (const { minor } of PLACES) {
        const metric = (name: string): number =>
          Number(new RegExp(`^habanalabs_${name}\\{[^}]*device="${minor}"[^}]*\\} (\\S+)$`, 'm').exec(metrics)?.[1]);
        const { temp1_input: heat, power1_input: power, clk_cur_freq_mhz: clock } = read[minor]!;
        const [heatRow, powerRow, clockRow, usedRow] = rows[minor]!;
        expect([1000 * heatRow!, 1e6 * powerRow!, clockRow]).toEqual([heat, power, clock]);
        expect([1000 * metric('temperature_onchip'), 1000 * metric('power_mW'), metric('clock_soc_mhz')]).toEqual([
          heat,
          power,
          clock,
        ]);
        expect(Math.round(metric('memory_used_bytes') / 2 ** 20)).toBe(usedRow);
      }
    },
  );

  const sensorsReason = programSkipReason('sensors', 'lm-sensors');
  it.skipIf(sensorsReason !== undefined)('are what sensors prints (needs root and sensors)', () => {
    const chips = JSON.parse(outputOf(node, ['sensors', '-j'])) as Record<
      string,
      Record<string, Record<string, number>>
    >;
    for (const { minor, busId } of PLACES) {
      const [, chip] = Object.entries(chips).find(([name]) => name.endsWith(`-pci-${busId.slice(5, 7)}00`))!;
      const {
        temp1_input: heat,
        temp2_input: memoryHeat,
        power1_input: power,
        in0_input: volt,
        curr1_input: ampere,
      } = read[minor]!;
      expect(chip).toMatchObject({
        temp1: { temp1_input: heat! / 1e3 },
        temp2: { temp2_input: memoryHeat! / 1e3 },
        power1: { power1_input: power! / 1e6 },
        in0: { in0_input: volt! / 1e3 },
        curr1: { curr1_input: ampere! / 1e3 },
      });
    }
  });

  const exporterReason =
    programSkipReason('prometheus-node-exporter', 'prometheus-node-exporter') ?? programSkipReason('curl', 'curl');
  it.skipIf(exporterReason !== undefined)(
    'are what the node exporter exports (needs root, prometheus-node-exporter and curl)',
    () => {
      // The exporter takes no free port, so it listens on a socket of this address only while it runs.
      const exporter =
        'prometheus-node-exporter --collector.disable-defaults --collector.hwmon --web.listen-address=127.0.0.1:$0';
      const get = 'until curl -s http://127.0.0.1:$0/metrics || ! kill -0 $!; do :; done; kill $!; wait $!';
      const port = String(20_000 + (process.pid % 10_000));
      const [text] = [outputOf(node, ['sh', '-c', `${exporter} 2>&1 & ${get}; true`, port])];
      for (const { minor, busId } of PLACES) {
        const value = (metric: string, sensor: string): number =>
          Number(
            new RegExp(
              `^node_hwmon_${metric}\\{chip="[^"]*${busId.slice(0, 7)}:00_0",sensor="${sensor}"\\} (\\S+)$`,
              'm',
            ).exec(text)?.[1],
          );
        const { temp1_input: heat, power1_input: power, curr1_input: ampere } = read[minor]!;
        expect([value('temp_celsius', 'temp1'), value('power_watt', 'power1'), value('curr_amps', 'curr1')]).toEqual([
          heat! / 1e3,
          power! / 1e6,
          ampere! / 1e3,
        ]);
      }
    },
  );
});

describe('bubblewrap', () => {
  const reason = programSkipReason('bwrap', 'bubblewrap');

  it.skipIf(reason !== undefined)('passes device nodes and /sys into a sandbox (needs root and bwrap)', () => {
    const sandbox = ['bwrap', '--ro-bind', '/', '/', '--dev-bind', '/dev', '/dev', '--unshare-pid', '--proc', '/proc'];
    const query = [process.execPath, MAIN, 'smi', '-Q', 'bus_id', '-f', 'csv,noheader'];
    const out = outputOf(['--cards', '2'], [...sandbox, ...query], KERNEL);
    expect(out.trim().split('\n')).toEqual(PLACES.map(({ busId }) => busId));
  });
});
