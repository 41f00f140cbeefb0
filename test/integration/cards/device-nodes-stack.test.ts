/** This package on device nodes of emulated cards, through its driver for real ones: the contract of driver files, demo, put and get, perftest. Needs root and FUSE. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { built, ROOT } from '../../fixtures/tools/built.ts';
import { MAIN } from '../../fixtures/tools/command-line.ts';
import { deviceNodesSkipReason, environment, KERNEL, run } from '../../fixtures/tools/run-command.ts';

const PUT_GET = built(join(ROOT, 'examples/put-get.ts'));
const reason = deviceNodesSkipReason();
if (reason !== undefined) console.log(`this package on device nodes skipped: ${reason}`);

describe.skipIf(reason !== undefined)('device nodes (needs root and /dev/fuse)', () => {
  let shared: TestNodeServer;
  let place = '';
  const onShared = (args: readonly string[]): readonly [number | null, string, string] =>
    run(['--socket', shared.socketPath, ...args], KERNEL);
  beforeAll(async () => {
    place = mkdtempSync(join(tmpdir(), 'gaudi-ucx-devices-'));
    shared = await TestNodeServer.start({ cards: 2 });
  });
  afterAll(async () => {
    await shared.stop();
    expect(shared.errors).toBe('');
    rmSync(place, { recursive: true });
  });

  it('are cards with a driver and its ABI to the doctor', () => {
    const [, text, errors] = onShared([process.execPath, MAIN, 'doctor']);
    expect(text, errors).toMatch(/^ok +driver +habanalabs \S+, 2 cards, ioctls of DRM \(Linux 6\.7 or newer\)$/m);
  });

  for (const asic of process.env['GAUDI_UCX_TEST_FULL'] === '1' ? ['gaudi', 'gaudi2'] : ['gaudi2']) {
    it(`fulfil the contract of driver files, through the kernel driver port, on ${asic}`, () => {
      const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
      const command = [process.execPath, vitest, 'run', '--reporter=json', 'test/contract/driver/driver-file.test.ts'];
      const [code, text] = run(['--cards', '1', '--asic', asic, '--', ...command], KERNEL);
      const report = JSON.parse(text.slice(text.indexOf('{'))) as { numPassedTests: number; numFailedTests: number };
      expect([code, report.numFailedTests]).toEqual([0, 0]);
      expect(report.numPassedTests).toBeGreaterThan(60);
    }, 120_000);
  }

  it('carry the demo of this package: discovery, DMA, dma-bufs between processes', () => {
    const [code, text, errors] = onShared(['--', process.execPath, MAIN, 'demo']);
    expect([code, errors]).toEqual([0, '']);
    expect(text).toContain('the received file is identical');
    expect(text).toContain('gaudi_ipc');
    expect(text).toContain('GB/s (emulated)');
  }, 60_000);

  it('carry put and get, and say that the cards are emulated', () => {
    const tools = `${process.execPath} ${PUT_GET} && ${process.execPath} ${MAIN} info -s`;
    const [code, text, errors] = onShared(['--', 'sh', '-c', tools]);
    expect([code, errors]).toEqual([0, '']);
    expect(text).toMatch(/^put 1048576 bytes by gaudi_cpy .*\nthe same bytes came back\n/);
    expect(text).toContain('2 Gaudi cards (emulated node)');
  });

  it('carry perftest between processes with a card each, over gaudi_ipc', async () => {
    const socket = join(place, 'perftest.sock');
    const batch = join(place, 'batch');
    const lines = ['put -t ucp_put_bw', 'get -t ucp_get', 'ipc -t put_bw -x gaudi_ipc -d gaudi0 -D zcopy'];
    writeFileSync(batch, lines.map((line) => `${line} -m gaudi -s 65536\n`).join(''));
    const perftest = [
      '--socket',
      shared.socketPath,
      '--',
      process.execPath,
      MAIN,
      'perftest',
      '-V',
      '-n',
      '16',
      '-w',
      '0',
    ];
    const server = spawn(process.execPath, [MAIN, 'run', ...perftest, '-p', socket], { env: environment(KERNEL) });
    server.stdout.setEncoding('utf8');
    let printed = '';
    server.stdout.on('data', (piece: string) => {
      printed += piece;
    });
    await vi.waitFor(() => expect(printed).toContain('Waiting for connection...'), { timeout: 30_000 });
    const exit = once(server, 'exit');
    const [code, text, errors] = run([...perftest, socket, '-b', batch, '-v'], KERNEL);
    expect([code, errors, (await exit)[0]]).toEqual([0, '', 0]);
    expect(text).toMatch(/^# emulated cards\n[\s\S]*\nput,16,[\s\S]*\nget,16,[\s\S]*\nipc,16,/);
    await vi.waitFor(() => expect(printed).toContain('gaudi (emulated)'));
  }, 60_000);
});
