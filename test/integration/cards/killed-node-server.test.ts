/** A node server that is killed while programs use its cards: what they say names it, also where an operation has no request that could. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, it } from 'vitest';
import { Context, Status } from '../../../src/index.ts';
import { ENGINES } from '../../fixtures/pair.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { MAIN } from '../../fixtures/tools/command-line.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

it.each(ENGINES)('is named by worker.causeOf over %s', async (engine) => {
  const server = await TestNodeServer.start({ cards: 1 });
  const env = { UCX_GAUDI_DRIVER: `emulator:${server.socketPath}` };
  const context = await Context.create({ env, engine, configDirectories: [], logSink: () => {} });
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const hbm = context.memMap({ allocate: 4096, memoryType: 'gaudi' });
  const rkey = endpoint.unpackRkey(context.packRkey(hbm));
  // The same bytes: registering others would throw, with the reason.
  const bytes = new Uint8Array(4096);
  await endpoint.put(bytes, rkey);
  await server.kill();
  let status: Status = Status.INPROGRESS;
  while (status === Status.INPROGRESS || status === Status.OK) {
    const put = endpoint.putNbx(bytes, 0, 4096, rkey, 0);
    if (typeof put === 'number') status = put;
    else {
      // The end of a server is seen by the event loop.
      while (!put.isCompleted) {
        worker.progress();
        await new Promise(setImmediate);
      }
      status = put.status;
      put.free();
    }
  }
  expect(worker.causeOf(status)).toMatchObject({ message: expect.stringContaining(`${server.socketPath} has ended`) });
  await endpoint.close({ force: true });
  await context.close();
});

// One that also reads the memory between its puts, to see them arrive.
it.each([
  ['ucp_put_bw', '65536'],
  ['ucp_put_lat', '8'],
])(
  'is named by perftest -t %s',
  async (test, size) => {
    const server = await TestNodeServer.start({ cards: 1 });
    const args = ['perftest', '-l', '-t', test, '-m', 'gaudi', '-s', size, '-n', '1000000000'];
    const env = environment({ UCX_GAUDI_DRIVER: `emulator:${server.socketPath}` });
    const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'pipe', 'pipe'], env });
    let said = '';
    child.stderr.on('data', (text) => {
      said += String(text);
    });
    // The first line of figures: it measures.
    await once(child.stdout, 'data');
    await server.kill();
    const [exit] = await once(child, 'close');
    expect([exit, said]).toEqual([1, expect.stringContaining(`${server.socketPath} has ended`)]);
  },
  60_000,
);
