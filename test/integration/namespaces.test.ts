/** Containers: a peer in another PID or mount namespace is reached by the transports that work, and refused by the others with the reason. */

import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Context } from '../../src/index.ts';
import { builtSpecifier, ROOT } from '../fixtures/built.ts';

const ENTRY = builtSpecifier(join(ROOT, 'src/index.ts'));
const MESSAGE_BYTES = 100_000;

/** Why this user cannot create namespaces; undefined if it can. */
function reasonToSkip(): string | undefined {
  const made = spawnSync('unshare', ['--mount', '--pid', '--fork', '--mount-proc', 'true'], { encoding: 'utf8' });
  if (made.error !== undefined) return `unshare: ${made.error.message}`;
  return made.status === 0 ? undefined : made.stderr.trim();
}

const skip = reasonToSkip();
if (skip !== undefined) console.info(`skipped: namespaces cannot be made here (${skip})`);

/** Sends a message to the worker whose address is its argument; prints the result as JSON. */
const SENDER = `
  const context = await Context.create({ config: { TLS: 'posix,cma,self' } });
  const worker = context.worker();
  let result;
  try {
    const endpoint = worker.endpoint(new Uint8Array(Buffer.from(process.argv[2], 'hex')));
    const sent = await endpoint.tagSend(new Uint8Array(${MESSAGE_BYTES}).fill(7), { tag: 1 });
    result = { transports: endpoint.transports, sent };
    await endpoint.close();
  } catch (error) {
    result = { code: error.code, message: error.message };
  }
  console.log(JSON.stringify(result));
  await context.close();
`;

describe.skipIf(skip !== undefined)('a peer (needs root and unshare)', { timeout: 60_000 }, () => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-namespace-'));
    writeFileSync(join(folder, 'sender.mjs'), `import { Context } from ${ENTRY};\n${SENDER}`);
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  async function send(address: Uint8Array, launcher: readonly string[]): Promise<Record<string, unknown>> {
    const program = [process.execPath, join(folder, 'sender.mjs')];
    const [command, ...args] = [...launcher, ...program, Buffer.from(address).toString('hex')];
    const child = spawn(command!, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] });
    let out = '';
    let err = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      err += text;
    });
    const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
    expect({ code, err }).toEqual({ code: 0, err: '' });
    return JSON.parse(out) as Record<string, unknown>;
  }

  async function withReceiver(
    run: (address: Uint8Array, received: Promise<Uint8Array>) => Promise<void>,
  ): Promise<void> {
    const context = await Context.create({ env: {}, configDirectories: [], config: { TLS: 'posix,cma,self' } });
    const worker = context.worker();
    const stop = new AbortController();
    const target = new Uint8Array(MESSAGE_BYTES);
    const received = worker.tagRecv(target, { tag: 1, signal: stop.signal }).then(() => target);
    received.catch(() => {});
    try {
      await run(worker.address(), received);
    } finally {
      stop.abort();
      await context.close();
    }
  }

  it('in another PID namespace is reached over posix, and not over cma', async () => {
    await withReceiver(async (address, received) => {
      const result = await send(address, ['unshare', '--pid', '--fork', '--mount-proc']);
      expect(result).toMatchObject({
        transports: ['posix/memory'],
        sent: { transport: 'posix', protocol: 'tag/rndv/am' },
      });
      expect(await received).toEqual(new Uint8Array(MESSAGE_BYTES).fill(7));
    });
  });

  it('with another /dev/shm is refused at once with the reason', async () => {
    await withReceiver(async (address) => {
      const mount = 'mount -t tmpfs none /dev/shm && exec "$@"';
      const result = await send(address, ['unshare', '--mount', 'sh', '-c', mount, 'sh']);
      expect(result['code']).toBe('ERR_UNREACHABLE');
      expect(result['message']).toMatch(/posix.*another \/dev\/shm.*mount namespace or container/);
      // Its keys are published there.
      expect(result['message']).toMatch(
        /cma\/memory: the peer has another \/dev\/shm, where the keys of memory are published/,
      );
    });
  });
});
