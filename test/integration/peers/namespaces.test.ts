/** Containers: a peer in another PID or mount namespace is reached by the transports that work, and refused by the others with the reason. */

import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Context } from '../../../src/index.ts';
import { builtSpecifier, ROOT } from '../../fixtures/tools/built.ts';

const ENTRY = builtSpecifier(join(ROOT, 'src/index.ts'));
const MESSAGE_BYTES = 100_000;

type Settings = Readonly<Record<string, string>>;

/** Without tcp: a peer in another namespace is reached by shared memory, or not at all. */
const SHARED_MEMORY: Settings = { TLS: 'posix,cma,self' };
const WITH_TCP: Settings = { TLS: 'posix,cma,tcp,self' };
const IN_PID_NAMESPACE = ['unshare', '--pid', '--fork', '--mount-proc'];
const IN_MOUNT = ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs none /dev/shm && exec "$@"', 'sh'];
const WHOLE = new Uint8Array(MESSAGE_BYTES).fill(7);

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
  const context = await Context.create({ config: JSON.parse(process.argv[3]) });
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

  async function send(
    address: Uint8Array,
    config: Settings,
    launcher: readonly string[],
  ): Promise<Record<string, unknown>> {
    const program = [process.execPath, join(folder, 'sender.mjs')];
    const [command, ...args] = [...launcher, ...program, Buffer.from(address).toString('hex'), JSON.stringify(config)];
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
    config: Settings,
    run: (address: Uint8Array, received: Promise<Uint8Array>) => Promise<void>,
  ): Promise<void> {
    const context = await Context.create({ env: {}, configDirectories: [], config });
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

  it('in another PID namespace is reached over posix with UCX_POSIX_USE_PROC_LINK=n, and not over cma', async () => {
    const config = { ...SHARED_MEMORY, POSIX_USE_PROC_LINK: 'n' };
    await withReceiver(config, async (address, received) => {
      const result = await send(address, config, IN_PID_NAMESPACE);
      expect(result).toMatchObject({
        transports: ['posix/memory'],
        sent: { transport: 'posix', protocol: 'tag/rndv/am' },
      });
      expect(await received).toEqual(WHOLE);
    });
  });

  // The setting of the peer, then that of the sender.
  it.each([
    ['y', 'y'],
    ['y', 'n'],
    ['n', 'y'],
  ])('in another PID namespace is not reached with %s and %s, and told why', async (there, here) => {
    await withReceiver({ ...SHARED_MEMORY, POSIX_USE_PROC_LINK: there }, async (address) => {
      const result = await send(address, { ...SHARED_MEMORY, POSIX_USE_PROC_LINK: here }, IN_PID_NAMESPACE);
      expect(result['code']).toBe('ERR_UNREACHABLE');
      expect(result['message']).toMatch(/posix.*another pid namespace.*set UCX_POSIX_USE_PROC_LINK=n for both/);
    });
  });

  it('with another /dev/shm is reached by tcp for messages, and by cma for their data', async () => {
    await withReceiver(WITH_TCP, async (address, received) => {
      const result = await send(address, WITH_TCP, IN_MOUNT);
      expect(result).toMatchObject({ sent: { transport: 'cma', protocol: 'tag/rndv/get' } });
      expect(result['transports']).toEqual(expect.arrayContaining(['cma/memory', expect.stringMatching(/^tcp/)]));
      expect(await received).toEqual(WHOLE);
    });
  });

  it('with another /dev/shm is refused at once with the reason by posix', async () => {
    await withReceiver(SHARED_MEMORY, async (address) => {
      const result = await send(address, SHARED_MEMORY, IN_MOUNT);
      expect(result['code']).toBe('ERR_UNREACHABLE');
      expect(result['message']).toMatch(/posix.*another \/dev\/shm.*mount namespace or container/);
    });
  });
});
