/** The ten most common mistakes of users: the message names the object, the value and the next step. */

import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { connectEmulatedNode } from '../../../src/emulator/index.ts';
import * as hlthunk from '../../../src/hlthunk.ts';
import { Context, MemoryType } from '../../../src/index.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { ENGINES } from '../../fixtures/pair.ts';

const TLS = 'self,tcp,posix,gaudi_cpy';

function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-mistakes-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

describe.each(ENGINES)('over the engine %s, the message', (engine) => {
  const fixture = useContexts(engine);
  const open = () => fixture.open({ context: { engine, config: { TLS } } });

  async function failureWith(config: Record<string, string>): Promise<{ readonly message: string }> {
    return failureOf(async () => {
      const { context } = await fixture.open({ context: { engine, config } });
      return context;
    });
  }

  it('of a wrong port has the address, and says to start the listener', async () => {
    const { worker } = await open();
    const listener = worker.listener({ port: 0 });
    const { port } = listener.query();
    await listener.close();
    const { message } = await failureOf(() => worker.connect({ address: '127.0.0.1', port }));
    expect(message).toMatch(new RegExp(`^connect to 127\\.0\\.0\\.1:${port}: destination is unreachable`));
    expect(message).toContain('nothing listens there, start the listener first or check the port');
  });

  it('of a wrong UCX_TLS has its value, and says where the transports are listed', async () => {
    fixture.allow(/transport 'tpc' is not available, please use one or more of: .*tcp$/);
    const { message } = await failureWith({ TLS: 'tpc' });
    expect(message).toContain('UCX_TLS=tpc');
    expect(message).toMatch(engine === 'native' ? /'gaudi-ucx info -d' lists the transports/ : /add one to UCX_TLS/);
  });

  it('of memory that is too small has both sizes', async () => {
    const { context, endpoint } = await open();
    const rkey = endpoint.unpackRkey(context.packRkey(context.memMap({ allocate: 64 })));
    const put = await failureOf(() => endpoint.put(new Uint8Array(128), rkey));
    expect(put.message).toBe('128 bytes do not fit into remote memory of 64 bytes');
    const hbm = await failureOf(async () => context.memMap({ allocate: 2 ** 50, memoryType: MemoryType.GAUDI }));
    expect(hbm.message).toMatch(/: 1125899906842624 bytes of card 0 \(.*\): \d+ bytes are free/);
  });

  it('of a closed object names it', async () => {
    const { context, worker, endpoint } = await open();
    const rkey = endpoint.unpackRkey(context.packRkey(context.memMap({ allocate: 64 })));
    await endpoint.close();
    expect((await failureOf(() => endpoint.put(new Uint8Array(4), rkey))).message).toBe('endpoint is closed');
    await worker.close();
    expect((await failureOf(async () => worker.address())).message).toBe('worker is closed');
  });

  it('of memory that peers may not write names the missing protection', async () => {
    const { context, endpoint } = await open();
    const memory = context.memMap({ allocate: 64, protection: ['local-read', 'local-write', 'remote-read'] });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    const { message } = await failureOf(() => endpoint.put(new Uint8Array(4), rkey));
    expect(message).toContain('argument rkey must be mapped with protection remote-write');
    expect(message).toContain('got "remote-read"');
  });

  it('of a detached buffer names the argument and the reason', async () => {
    const { context, endpoint } = await open();
    const rkey = endpoint.unpackRkey(context.packRkey(context.memMap({ allocate: 64 })));
    const bytes = new Uint8Array(32);
    structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
    const { message } = await failureOf(() => endpoint.put(bytes, rkey));
    expect(message).toBe('argument local must not be detached or shortened, got Uint8Array of 0 bytes');
  });

  it.skipIf(process.geteuid?.() !== 0)(
    'of a small /dev/shm has the folder, and says to enlarge or replace it (needs root)',
    async () => {
      const folder = temporaryFolder();
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', folder]);
      onTestFinished(() => void execFileSync('umount', [folder]));
      const { message } = await failureWith({ TLS: 'posix', POSIX_DIR: folder });
      expect(message).toContain(folder);
      expect(message).toMatch(/enlarge .*set UCX_POSIX_DIR to another folder/);
    },
  );
});

describe('over the native engine, the message', () => {
  const fixture = useContexts('native');

  it('of an address of another version has both versions, and says to use the same one', async () => {
    const { worker } = await fixture.open({ context: { engine: 'native', config: { TLS } } });
    const address = worker.address();
    // After the magic number.
    address[4] = 99;
    const { message } = await failureOf(async () => worker.endpoint(address));
    expect(message).toMatch(
      /version 99, but this library supports only \d+: use the same version of gaudi-ucx at both/,
    );
  });

  it('of a key file that others can read has its mode and the right ones', async () => {
    const file = join(temporaryFolder(), 'key');
    writeFileSync(file, 'x'.repeat(64));
    chmodSync(file, 0o644);
    const config = { TLS: 'tcp', TCP_SECURITY: 'encrypt', TCP_KEY_FILE: file };
    const { message } = await failureOf(() => fixture.open({ context: { engine: 'native', config } }));
    expect(message).toContain(`"${file}"`);
    expect(message).toMatch(/mode 0600 or 0400, got 0644/);
  });
});

describe('the message', () => {
  it('of a node server that was not started has its socket, and the command that starts it', async () => {
    const socket = join(temporaryFolder(), 'none.sock');
    const failures = [
      await failureOf(() => connectEmulatedNode(socket)),
      await failureOf(() => Context.create({ driver: `emulator:${socket}`, env: {}, configDirectories: [] })),
    ];
    for (const { message } of failures) {
      expect(message).toContain(`no node server at ${socket} (ENOENT)`);
      expect(message).toContain('gaudi-ucx node up');
    }
  });

  it('of a busy card names the card, its device node and who has it', async () => {
    const node = hlthunk.openDriverNode({ driver: 'emulator' });
    onTestFinished(() => node.close());
    const device = hlthunk.open(node, { minor: 0 });
    onTestFinished(() => hlthunk.close(device));
    const { message } = await failureOf(async () => hlthunk.open(node, { minor: 0 }));
    expect(message).toMatch(
      /open of card 0 \(accel0, [\d:.]+\) at \/dev\/accel\/accel0 .*: EBUSY \(this process has it open\)/,
    );
  });
});
