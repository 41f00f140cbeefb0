import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { catches } from '../../test/fixtures/catches.ts';
import { device, failureOf, rkeyOf, useContexts } from '../../test/fixtures/contexts.ts';
import type { Explanation } from '../api/contract/explanation.ts';
import { open } from '../hlthunk/index.ts';
import { LogLevel } from '../ucs/debug/log.ts';
import { MemoryType } from '../ucs/memory/memory-type.ts';
import { Status } from '../ucs/type/status.ts';
import { Context } from './context.ts';
import { GAUDI_CONFIG_TABLE } from './program/config.ts';
import { ProgramConfig as Config } from './program/program-config.ts';

/** The transports of host memory between processes. */
const SHM = ['posix/memory', 'cma/memory'];
const fixture = useContexts();

describe('the option driver', () => {
  it('is selected by the option, which overrides the environment', async () => {
    const env = { UCX_GAUDI_DRIVER: 'kernel' };
    for (const options of [{ env }, { env, config: { GAUDI_DRIVER: 'kernel' } }, { config: Config.read({ env }) }]) {
      await using context = await Context.create({ ...options, driver: 'emulator' });
      expect(context.emulated).toBe(true);
      expect(context.config.get(GAUDI_CONFIG_TABLE).DRIVER).toBe('emulator');
    }
  });

  it('is rejected together with a node or devices, and for an unknown driver', async () => {
    const node = fixture.node();
    const both = Context.create(fixture.quiet({ node, driver: 'emulator' }));
    await expect(both).rejects.toMatchObject({
      code: 'ERR_INVALID_PARAM',
      message: expect.stringContaining('driver must not be combined with node'),
    });
    const wrong = Context.create(fixture.quiet({ driver: 'emulater' as never }));
    await expect(wrong).rejects.toMatchObject({ code: 'ERR_CONFIG_VALUE' });
    const socket = Context.create(fixture.quiet({ driver: 'emulator:/nowhere/at-all.sock' }));
    await expect(socket).rejects.toMatchObject({ code: 'ERR_NODE_UNREACHABLE' });
  });
});

describe('UCX_TLS', () => {
  it.each([
    ['all', ['self/memory', ...SHM, 'gaudi_cpy/gaudi0', 'gaudi_ipc/gaudi0']],
    ['gaudi_cpy', ['gaudi_cpy/gaudi0']],
    ['gaudi_copy', ['gaudi_cpy/gaudi0']],
    ['gaudi', ['gaudi_cpy/gaudi0', 'gaudi_ipc/gaudi0']],
    ['gaudi_ipc', ['gaudi_ipc/gaudi0']],
    ['self', ['self/memory']],
    ['self,shm', ['self/memory', ...SHM]],
    ['sm', SHM],
    ['mm', ['posix/memory']],
    ['posix', ['posix/memory']],
    ['cma', ['cma/memory']],
    ['^shm,gaudi', ['self/memory']],
    ['self,gaudi', ['self/memory', 'gaudi_cpy/gaudi0', 'gaudi_ipc/gaudi0']],
    ['^gaudi_cpy', ['self/memory', ...SHM, 'gaudi_ipc/gaudi0']],
    ['^gaudi', ['self/memory', ...SHM]],
    ['^gaudi_copy', ['self/memory', ...SHM, 'gaudi_ipc/gaudi0']],
    ['^self', [...SHM, 'gaudi_cpy/gaudi0', 'gaudi_ipc/gaudi0']],
    ['gaudi*', ['gaudi_cpy/gaudi0', 'gaudi_ipc/gaudi0']],
    ['self,nothing', ['self/memory']],
  ])('%s leaves %s', async (TLS, transports) => {
    fixture.allow(/^transport 'nothing' is not available/);
    const { endpoint } = await fixture.open({ node: { cards: 1 }, context: { config: { TLS } } });
    expect([...endpoint.transports].sort()).toEqual([...transports].sort());
  });

  it.each(['ib', 'rc'])('%s needs an RDMA device, and the error says how to get one', async (TLS) => {
    fixture.allow(/^transport '\w+' is not available/);
    const node = fixture.node();
    const error = await failureOf(() => Context.create(fixture.quiet({ node, config: { TLS } })));
    expect(error).toMatchObject({ code: 'ERR_NO_TRANSPORT', status: Status.NO_DEVICE });
    expect(error.message).toContain(`'${TLS}' needs an RDMA device: set UCX_GAUDI_EMULATOR_NICS=1 for an emulated one`);
  });

  it('ib,rc,gaudi_gdr: messages in HBM go from card to card by RDMA, which registers it by its dma-buf', async () => {
    const TLS = 'ib,rc,gaudi_gdr';
    const { context, worker, endpoint } = await fixture.open({
      node: { cards: 1, nics: 1 },
      context: { config: { TLS } },
    });
    expect([...endpoint.transports].sort()).toEqual(['gaudi_cpy/gaudi0', 'rc/hca0:1']);
    const [source, target] = [1, 2].map(() => context.memMap({ allocate: 1 << 20, memoryType: MemoryType.GAUDI }));
    const bytes = Uint8Array.from({ length: 1 << 20 }, (_, i) => (i * 31) >> 3);
    await source!.write(bytes);
    await Promise.all([worker.tagRecv(target!, { tag: 7n }), endpoint.tagSend(source!, { tag: 7n })]);
    const read = new Uint8Array(1 << 20);
    await target!.read(read);
    expect(read).toEqual(bytes);
  });

  it.each(['dc', 'cuda_copy'])('%s is in the UCX library only, as the error says', async (TLS) => {
    fixture.allow(/^transport '\w+' is not available/);
    const node = fixture.node();
    const error = await failureOf(() => Context.create(fixture.quiet({ node, config: { TLS } })));
    expect(error).toMatchObject({ code: 'ERR_NO_TRANSPORT', status: Status.NO_DEVICE });
    expect(error.message).toContain(`'${TLS}' is a transport of the UCX library: set UCX_ENGINE=libucx`);
  });

  it.each(['nic', '^self,shm,tcp,gaudi', '^*'])(
    '%s leaves no transport, and the error gives the reason',
    async (TLS) => {
      fixture.allow(/^transport 'nic' is not available/);
      const node = fixture.node();
      const error = await failureOf(() => Context.create(fixture.quiet({ node, config: { TLS } })));
      expect(error).toMatchObject({ code: 'ERR_NO_TRANSPORT', status: Status.NO_DEVICE });
      expect(error.message).toMatch(/self.*UCX_TLS/);
      expect(error.message).toMatch(/gaudi_cpy.*UCX_TLS/);
    },
  );

  it.each(['^gaudi_cpy', 'self', 'gaudi_ipc'])('%s: device memory is rejected with the reason', async (TLS) => {
    const { context } = await fixture.open({ context: { config: { TLS } } });
    const error = await failureOf(() => context.memMap({ allocate: 4096, memoryType: MemoryType.GAUDI }));
    expect(error).toMatchObject({ code: 'ERR_UNSUPPORTED', status: Status.UNSUPPORTED });
    expect(error.message).toMatch(/gaudi memory.*gaudi_cpy.*excluded by UCX_TLS.*; allow gaudi_cpy in UCX_TLS$/);
  });

  it('gaudi_cpy alone: host to host is rejected with every lane and its reason', async () => {
    const stack = await fixture.open({ context: { config: { TLS: 'gaudi_cpy' } } });
    const remote = stack.context.memMap({ buffer: new Uint8Array(4096) });
    const rkey = rkeyOf(stack, remote);
    for (const run of [
      () => stack.endpoint.put(new Uint8Array(8), rkey),
      () => stack.endpoint.getNbx(new Uint8Array(8), 0, 8, rkey, 0),
    ]) {
      const error = await failureOf(run);
      expect(error.status).toBe(Status.UNREACHABLE);
      expect(error.message).toMatch(/host.*host.*works only if the local or the remote memory is gaudi memory/);
    }
    const check = ({ chosen, rejected }: Explanation): void => {
      expect(chosen).toEqual([]);
      expect(rejected.map(({ transport }) => transport)).toEqual([
        'gaudi_cpy/gaudi0',
        'gaudi_cpy/gaudi1',
        'self',
        'posix',
        'cma',
        'tcp',
        'gaudi_ipc',
      ]);
    };
    check(stack.endpoint.explain('put', new Uint8Array(8), rkey));
    expect(remote.bytes).toEqual(new Uint8Array(4096));
    // A planted fault: the explanation of another setting.
    const other = await fixture.open({ context: { config: { TLS: 'gaudi_cpy,self' } } });
    const otherKey = rkeyOf(other, other.context.memMap({ allocate: 4096 }));
    await catches(check, other.endpoint.explain('put', new Uint8Array(8), otherKey), /deeply equal \[\]/);
  });

  it('is rejected unless it is a list', async () => {
    const error = await failureOf(() =>
      Context.create(fixture.quiet({ node: fixture.node(), config: { TLS: 'a,^b' } })),
    );
    expect(error.code).toBe('ERR_CONFIG_VALUE');
    expect(error.message).toContain('UCX_TLS');
  });
});

describe('the driver', () => {
  it('of the kernel has no cards here: gaudi requested by name is NO_DEVICE', async () => {
    const config = { GAUDI_DRIVER: 'kernel', TLS: 'gaudi' };
    const error = await failureOf(() => Context.create(fixture.quiet({ config })));
    expect(error).toMatchObject({ code: 'ERR_GAUDI_DEVICE_NOT_FOUND', status: Status.NO_DEVICE });
  });

  it('of the kernel without cards leaves self, and explains the lack of gaudi_cpy', async () => {
    fixture.allow(/^gaudi_copy and gaudi_ipc are not used: .*no cards/);
    const context = await Context.create(fixture.quiet({ config: { GAUDI_DRIVER: 'kernel' } }));
    expect(fixture.records.filter(({ level }) => level <= LogLevel.WARN)).toHaveLength(1);
    expect(context.emulated).toBe(false);
    const error = await failureOf(() => context.memMap({ allocate: 64, memoryType: MemoryType.GAUDI }));
    expect(error).toMatchObject({ code: 'ERR_UNSUPPORTED' });
    expect(error.message).toMatch(/gaudi_copy.*no cards/);
    await context.close();
  });

  it.each([
    ['emulator', {}, 8],
    ['auto', { GAUDI_EMULATOR_CARDS: '3' }, 3],
    ['emulator', { GAUDI_EMULATOR_CARDS: '1', GAUDI_EMULATOR_ASIC: 'gaudi', GAUDI_EMULATOR_DMA_THREADS: '0' }, 1],
  ])('%s with %o has %s cards, emulated', async (DRIVER, config, cards) => {
    if (DRIVER === 'auto') fixture.allow(/^Gaudi memory is emulated, because no card was found/);
    const context = await Context.create(fixture.quiet({ config: { GAUDI_DRIVER: DRIVER, ...config } }));
    expect(context.emulated).toBe(true);
    const worker = context.worker();
    const endpoint = worker.endpoint(worker.address());
    expect(endpoint.transports.filter((name) => name.startsWith('gaudi_cpy/')).length).toBe(cards);
    const hbm = context.memMap({ allocate: 64, memoryType: MemoryType.GAUDI, sysDevice: cards - 1 });
    const rkey = endpoint.unpackRkey(context.packRkey(hbm));
    expect(await endpoint.put(new Uint8Array(64), rkey)).toMatchObject({ device: `gaudi${cards - 1}` });
    await context.close();
  });

  it.each([
    ['GAUDI_DRIVER', 'hardware'],
    ['GAUDI_EMULATOR_ASIC', 'gaudi9'],
    ['GAUDI_EMULATOR_CARDS', 'many'],
    ['GAUDI_EMULATOR_CARDS', '-1'],
    ['GAUDI_EMULATOR_HBM', '1 lightyear'],
    ['PROGRESS_SPIN', 'short'],
    ['GAUDI_COPY_BW', 'fast'],
    ['LOG_LEVEL', 'loud'],
  ])('%s=%s is refused by name', async (name, value) => {
    const error = await failureOf(() => Context.create(fixture.quiet({ config: { [name]: value } })));
    expect(error).toMatchObject({ code: 'ERR_CONFIG_VALUE', status: Status.INVALID_PARAM });
    expect(error.message).toContain(`UCX_${name}`);
    expect(error.message).toContain(value);
  });

  it.each([
    ['0', 'UCX_GAUDI_EMULATOR_CARDS (option) must be an unsigned integer, 1 to 8, got "0"'],
    ['9', 'UCX_GAUDI_EMULATOR_CARDS'],
  ])('an emulated node of %s cards is refused', async (cards, message) => {
    const config = { GAUDI_DRIVER: 'emulator', GAUDI_EMULATOR_CARDS: cards };
    const error = await failureOf(() => Context.create(fixture.quiet({ config })));
    expect(error).toMatchObject({ code: 'ERR_CONFIG_VALUE' });
    expect(error.message).toContain(message);
  });
});

describe('GAUDI_MAPPING_TABLE', () => {
  const table = (...entries: readonly object[]): { env: Record<string, string> } => ({
    env: { GAUDI_MAPPING_TABLE: JSON.stringify(entries) },
  });

  it('selects the cards and their indices', async () => {
    const node = fixture.node({ cards: 4 });
    const [, second, , fourth] = node.cards();
    const stack = await fixture.openOn(
      node,
      table({ index: 0, bus_id: fourth!.busId }, { index: 5, module_id: second!.moduleId, bus_id: second!.busId }),
    );
    expect(stack.endpoint.transports.filter((name) => name.startsWith('gaudi'))).toEqual([
      'gaudi_cpy/gaudi0',
      'gaudi_cpy/gaudi5',
      'gaudi_ipc/gaudi0',
      'gaudi_ipc/gaudi5',
    ]);
    // The other cards are free.
    node.open(0).close();
    expect((await failureOf(() => node.open(3))).code).toBe('ERR_SYSCALL_EBUSY');
    const hbm = device(stack, 64, 5);
    expect(hbm.sysDevice).toBe(5);
    expect(await stack.endpoint.put(new Uint8Array(64), rkeyOf(stack, hbm))).toMatchObject({ device: 'gaudi5' });
    for (const sysDevice of [1, 2, 3, 4, 6]) {
      const error = await failureOf(() => device(stack, 64, sysDevice));
      expect(error.status).toBe(Status.NO_DEVICE);
      expect(error.message).toMatch(/0, 5/);
    }
  });

  it.each([
    ['not json', /JSON/],
    ['{}', /array/],
    ['[{"index":0,"bus_id":"0000:ff:00.0"}]', /entry 0/],
  ])('%s is refused, and nothing stays open', async (GAUDI_MAPPING_TABLE, message) => {
    const node = fixture.node();
    const error = await failureOf(() => Context.create(fixture.quiet({ node, env: { GAUDI_MAPPING_TABLE } })));
    expect(error).toMatchObject({ code: 'ERR_GAUDI_MAPPING_TABLE', status: Status.INVALID_PARAM });
    expect(error.message).toMatch(message);
    node.open(0).close();
  });

  it('fails if one of its cards is busy, and closes the others', async () => {
    const node = fixture.node({ cards: 3 });
    const busy = node.open(1);
    const entries = node.cards().map(({ busId }, index) => ({ index, bus_id: busId }));
    const error = await failureOf(() => Context.create(fixture.quiet({ node, ...table(...entries) })));
    expect(error).toMatchObject({ code: 'ERR_GAUDI_DEVICE_BUSY', status: Status.BUSY });
    for (const minor of [0, 2]) node.open(minor).close();
    busy.close();
  });

  it('is optional: a busy card is skipped', async () => {
    const node = fixture.node({ cards: 3 });
    const busy = node.open(1);
    fixture.allow(/^gaudi1 is left out: .*0000:1a:00.0.*this process has it open/);
    const { context, endpoint } = await fixture.openOn(node);
    expect(endpoint.transports).toHaveLength(3 + 2 * 2);
    const left = context.query().unavailable.filter(({ name }) => name.startsWith('gaudi1'));
    expect(left).toEqual([{ name: 'gaudi1', reason: expect.stringContaining('EBUSY') }]);
    expect(fixture.records.filter(({ message }) => message.includes('is left out'))).toHaveLength(1);
    busy.close();
  });

  it('is optional: a card that this process has open is skipped, which is logged', async () => {
    const node = fixture.node({ cards: 2 });
    const device = open(node, { minor: 0 });
    fixture.allow(/^gaudi0 is left out: .*this process has it open/);
    const { context } = await fixture.openOn(node);
    expect(context.query().unavailable).toContainEqual({
      name: 'gaudi0',
      reason: expect.stringContaining('this process has it open'),
    });
    await context.close();
    device.close();
  });

  it('is optional: it is an error if all cards are busy and gaudi is requested', async () => {
    const node = fixture.node({ cards: 2 });
    const busy = [0, 1].map((minor) => node.open(minor));
    const error = await failureOf(() => Context.create(fixture.quiet({ node, config: { TLS: 'gaudi' } })));
    expect(error).toMatchObject({ code: 'ERR_GAUDI_DEVICE_BUSY', status: Status.BUSY });
    for (const file of busy) file.close();
  });
});

describe('configuration', () => {
  it('prefers options to the environment and the environment to files', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-config-'));
    try {
      const write = (lines: string): void => writeFileSync(join(folder, 'ucx.conf'), lines);
      write('UCX_TLS=gaudi_cpy\nUCX_GAUDI_COPY_LATENCY=3us\nUCX_PROGRESS_SPIN=7us\n');
      const stack = await fixture.open({
        node: { cards: 1 },
        context: {
          configDirectories: [folder],
          env: { UCX_GAUDI_COPY_LATENCY: '4us', UCX_TLS: 'gaudi' },
          config: { TLS: 'self' },
        },
      });
      expect(stack.endpoint.transports).toEqual(['self/memory']);
      const values = new Map(stack.context.config.entries.map(({ name, text, source }) => [name, `${text} ${source}`]));
      expect(values.get('UCX_TLS')).toBe('self option');
      expect(values.get('UCX_GAUDI_COPY_LATENCY')).toMatch(/^4.*us environment$/);
      expect(values.get('UCX_PROGRESS_SPIN')).toMatch(/^7.*us file .*ucx\.conf:3$/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('has a prefix for programs', async () => {
    const env = { UCX_TLS: 'gaudi', MPI_UCX_TLS: 'self' };
    const stack = await fixture.open({ node: { cards: 1 }, context: { env, envPrefix: 'MPI' } });
    expect(stack.endpoint.transports).toEqual(['self/memory']);
  });

  it('accepts the older spellings, with a note at info level', async () => {
    const env = { UCT_GAUDI_COPY_ENABLE_RCACHE: 'n', UCX_LOG_LEVEL: 'info' };
    const { context } = await fixture.open({ node: { cards: 1 }, context: { env } });
    const entry = context.config.entries.find(({ name }) => name === 'UCX_GAUDI_COPY_RCACHE');
    expect(entry).toMatchObject({ text: 'n', setBy: 'UCT_GAUDI_COPY_ENABLE_RCACHE' });
    const notes = fixture.records.filter(({ message }) => message.includes('UCT_GAUDI_COPY_ENABLE_RCACHE'));
    expect(notes).toMatchObject([{ level: LogLevel.INFO }]);
  });

  it('warns about variables that nothing reads, with the nearest name', async () => {
    fixture.allow(/unused/);
    await fixture.open({
      node: { cards: 1 },
      context: { env: { UCX_TLSS: 'self', OTHER: '1', UCX_LOG_LEVEL: 'warn' } },
    });
    const messages = fixture.records.map(({ message }) => message).filter((message) => message.includes('unused'));
    expect(messages).toHaveLength(1);
    expect(messages[0]).toMatch(/UCX_TLSS.*UCX_TLS\?/);
  });

  it('rejects options that do not exist', async () => {
    const error = await failureOf(() =>
      Context.create(fixture.quiet({ node: fixture.node(), config: { TSL: 'self' } })),
    );
    expect(error).toMatchObject({ code: 'ERR_CONFIG_UNKNOWN' });
    expect(error.message).toContain('UCX_TLS');
  });

  it('leaves a node of the caller open', async () => {
    const stack = await fixture.open();
    await stack.context.close();
    expect(stack.node.cards()).toHaveLength(2);
    stack.node.open(0).close();
  });
});
