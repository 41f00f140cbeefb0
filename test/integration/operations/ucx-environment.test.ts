/** An environment for C UCX with the native engine: what is honoured, what is silent, what is refused. Over libucx: test/integration/libucx/libucx-settings.test.ts. */

import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setImmediate as afterEvents } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { Context, MemoryType } from '../../../src/index.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { useCommandLine } from '../../fixtures/tools/command-line.ts';

const fixture = useContexts();
const { outputHere, runHere } = useCommandLine();

/** Variables of recipes for C UCX that mean nothing here. */
const RECIPE = {
  UCX_IB_PCI_RELAXED_ORDERING: 'on',
  UCX_CUDA_COPY_DMABUF: 'no',
  UCX_MEM_MMAP_HOOK_MODE: 'none',
  UCX_UNIFIED_MODE: 'y',
  UCX_MAX_EAGER_RAILS: '2',
  UCX_HANDLE_ERRORS: 'bt',
  UCX_ERROR_SIGNALS: 'ILL,SEGV',
  UCX_LOG_PRINT_ENABLE: 'y',
  UCX_RNDV_FRAG_MEM_TYPE: 'cuda',
  UCX_DYNAMIC_TL_SWITCH_INTERVAL: '1s',
  UCX_PROTO_ENABLE: 'y',
  UCX_DC_MLX5_NUM_DCI: '8',
};

describe('variables of C UCX', () => {
  it('without meaning here are silent, a misspelt name is not', async () => {
    expect(await runHere(['info', '-v'], RECIPE)).toMatchObject({ code: 0, err: '' });
    const { err } = await runHere(['info', '-v'], { ...RECIPE, UCX_UNIFIED_MOED: 'y' });
    expect(err).toMatch(/unused environment variable: UCX_UNIFIED_MOED \(maybe: UCX_UNIFIED_MODE\?\)/);
    expect((await runHere(['info', '-v'], { UCX_PROTO_ENABEL: 'y' })).err).toContain('(maybe: UCX_PROTO_ENABLE?)');
    expect((await runHere(['info', '-v'], { UCX_SYVS_FIFO_SIZE: '4' })).err).toContain('(maybe: UCX_SYSV_FIFO_SIZE?)');
  });

  it('are listed by info -c -a with the reason, and with their values', async () => {
    const text = await outputHere(['info', '-c', '-a', '-F', 'MODE'], RECIPE);
    expect(text).toMatch(
      /^# variables of C UCX 1\.22 without effect here: sets addresses or connection setup.*\n# UCX_UNIFIED_MODE=y$/m,
    );
    expect(text).toMatch(
      /^# variables of C UCX 1\.22 rejected, except with a value that changes nothing: some lanes execute atomics .*\n# UCX_ATOMIC_MODE$/m,
    );
    expect(await outputHere(['info', '-c'], RECIPE)).not.toContain('UNIFIED');
  });

  it('that must not be ignored fail a context with the reason', async () => {
    const env = {
      UCX_GAUDI_DRIVER: 'emulator',
      UCX_GAUDI_EMULATOR_NICS: '1',
      UCX_IB_DRIVER: 'emulator',
      UCX_ATOMIC_MODE: 'device',
    };
    const error = await failureOf(() => Context.create({ env, configDirectories: [] }));
    expect(error).toMatchObject({ code: 'ERR_UNSUPPORTED' });
    expect(error.message).toMatch(
      /^UCX_ATOMIC_MODE=device is not supported by engine native: .*UCX_TLS; UCX_ENGINE=libucx supports it$/,
    );
    await (await Context.create({ env: { ...env, UCX_ATOMIC_MODE: 'guess' }, configDirectories: [] })).close();
  });

  it('that matter to RDMA devices only do not fail a context without any', async () => {
    const rdma = { UCX_ATOMIC_MODE: 'device', UCX_IB_ROCE_LOCAL_SUBNET: 'y', UCX_IB_GPU_DIRECT_RDMA: 'n' };
    const env = { ...rdma, UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_NICS: '1', UCX_IB_DRIVER: 'emulator' };
    await (await Context.create({ env: { ...env, UCX_TLS: '^rc' }, configDirectories: [] })).close();
    const error = await failureOf(() => Context.create({ env: { ...env, UCX_TLS: 'rc' }, configDirectories: [] }));
    expect(error.message).toMatch(/^3 problems: UCX_ATOMIC_MODE=.*; UCX_IB_ROCE_LOCAL_SUBNET=.*; UCX_IB_GPU_DIRECT/);
  });

  it('and options that are invalid are told in one error', async () => {
    const env = { UCX_RNDV_THRESH: 'often', UCX_KEEPALIVE_INTERVAL: 'never', UCX_TLS: 'all,tcpp' };
    const error = await failureOf(() => Context.create({ env, config: { TSL: 'tcp' }, configDirectories: [] }));
    expect(error).toMatchObject({ code: 'ERR_CONFIG_VALUE' });
    expect(error.message).toMatch(/^4 problems: /);
    for (const name of [...Object.keys(env), 'option UCX_TSL']) expect(error.message).toContain(name);
  });
});

describe('UCX_ADDRESS_DEBUG_INFO', () => {
  it.each([
    ['y', /^# +peer: \S+:\d+$/m],
    ['n', /^# +peer: <no debug data>$/m],
  ])('%s: the peer has a name or none', async (ADDRESS_DEBUG_INFO, line) => {
    const { endpoint, worker } = await fixture.open({ context: { config: { TLS: 'self', ADDRESS_DEBUG_INFO } } });
    expect(endpoint.printInfo()).toMatch(line);
    const name = /'(\S+)'/.exec(worker.printInfo())![1]!;
    expect(endpoint.printInfo().includes(name)).toBe(ADDRESS_DEBUG_INFO === 'y');
  });
});

describe('UCX_SOCKADDR_TLS_PRIORITY', () => {
  it.each(['rdmacm,tcp', '*', 'tc?'])('%s has tcp', async (SOCKADDR_TLS_PRIORITY) => {
    const { worker } = await fixture.open({ context: { config: { TLS: 'self', SOCKADDR_TLS_PRIORITY } } });
    await worker.listener({ address: '127.0.0.1' }).close();
  });

  it('rdmacm leaves none, and the error says which there is', async () => {
    const config = { TLS: 'self', SOCKADDR_TLS_PRIORITY: 'rdmacm,sockcm' };
    const { worker } = await fixture.open({ context: { config } });
    const error = await failureOf(() => worker.listener({ address: '127.0.0.1' }));
    expect(error).toMatchObject({ code: 'ERR_UNSUPPORTED' });
    expect(error.message).toMatch(/UCX_SOCKADDR_TLS_PRIORITY=rdmacm,sockcm does not name tcp$/);
  });
});

describe('UCX_PROTO_EMULATION_ENABLE', () => {
  it.each(['y', 'n'])('%s: memory that no lane reaches', async (PROTO_EMULATION_ENABLE) => {
    const config = { TLS: 'tcp,gaudi_cpy', NET_DEVICES: 'lo', PROTO_EMULATION_ENABLE };
    const [near, far] = [await fixture.open({ context: { config } }), await fixture.open({ context: { config } })];
    const target = far.context.memMap({ allocate: 4096, memoryType: MemoryType.GAUDI });
    const endpoint = near.worker.endpoint(far.worker.address());
    const rkey = endpoint.unpackRkey(far.context.packRkey(target));
    const bytes = new Uint8Array(4096).fill(7);
    if (PROTO_EMULATION_ENABLE === 'n') {
      const error = await failureOf(() => endpoint.put(bytes, rkey));
      expect(error).toMatchObject({ code: 'ERR_UNREACHABLE' });
      expect(error.message).toContain('software emulation is disabled by UCX_PROTO_EMULATION_ENABLE');
      expect(endpoint.explain('put', bytes, rkey).chosen).toEqual([]);
      expect(endpoint.explain('tag', bytes, rkey).chosen).not.toEqual([]);
    } else {
      let isDone = false;
      const put = endpoint.put(bytes, rkey).finally(() => {
        isDone = true;
      });
      while (!isDone) {
        far.worker.progress();
        await afterEvents();
      }
      await put;
      const read = new Uint8Array(4096);
      await target.read(read);
      expect(read).toEqual(bytes);
    }
    rkey.release();
  });
});

describe('UCX_TCP_CM_REUSEADDR', () => {
  /** A port of which a connection still ends: its side of the server closed first (TIME_WAIT). */
  async function endingPort(): Promise<number> {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const accepted = once(server, 'connection');
    const client = connect(port, '127.0.0.1');
    const [socket] = (await accepted) as [Socket];
    client.on('end', () => client.end()).resume();
    socket.end();
    socket.resume();
    await once(socket, 'close');
    server.close();
    await once(server, 'close');
    return port;
  }

  it.each(['y', 'n'])('%s: a port whose connections still end', async (TCP_CM_REUSEADDR) => {
    const { worker } = await fixture.open({ context: { config: { TLS: 'self', TCP_CM_REUSEADDR } } });
    const listen = async (): Promise<void> =>
      worker.listener({ address: '127.0.0.1', port: await endingPort() }).close();
    if (TCP_CM_REUSEADDR === 'y') await listen();
    else expect(await failureOf(listen)).toMatchObject({ code: 'ERR_SYSCALL_EADDRINUSE' });
  });
});
