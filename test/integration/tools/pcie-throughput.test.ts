/** The PCIe throughput of cards in metrics and top, while a program moves data. */

import { expect, it } from 'vitest';
import { Context } from '../../../src/index.ts';
import { useNodeCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useNodeCommandLine();
const BYTES = 1 << 20;

it('metrics have the throughput of a card that a program uses', { timeout: 60_000 }, async () => {
  expect(cli.run(['node', 'up', '--cards', '2']).code).toBe(0);
  const env = { XDG_RUNTIME_DIR: cli.folder };
  const context = await Context.create({ driver: `emulator:${cli.socket}`, env });
  try {
    const worker = context.worker();
    const endpoint = worker.endpoint(worker.address());
    const rkey = endpoint.unpackRkey(context.packRkey(context.memMap({ allocate: BYTES, memoryType: 'gaudi' })));
    const rates = async (): Promise<Record<string, number[]>> => {
      const text = await cli.outputHere(['metrics', '--once']);
      const values = (name: string): number[] =>
        [...text.matchAll(new RegExp(`^${name}\\{.*\\} (\\S+)$`, 'gm'))].map(([, value]) => Number(value));
      return { receive: values('habanalabs_pcie_rx'), transmit: values('habanalabs_pcie_tx') };
    };
    await rates();
    await endpoint.put(new Uint8Array(BYTES), rkey);
    const { receive, transmit } = await rates();
    expect(receive).toEqual([expect.any(Number), 0]);
    expect(receive![0]).toBeGreaterThan(0);
    expect(transmit![0]! / receive![0]!).toBeLessThan(0.1);
    rkey.release();
  } finally {
    await context.close();
  }
});
