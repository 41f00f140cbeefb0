/** The effects of UCX_TLS and UCX_*_DEVICES on a context: opened resources, explanations, warnings. */

import { networkInterfaces } from 'node:os';
import { describe, expect, it } from 'vitest';
import { Context, type ContextOptions, MemoryType } from '../../../src/index.ts';
import { device, failureOf, rkeyOf, useContexts } from '../../fixtures/contexts.ts';
import { nativeContext } from '../../fixtures/libucp/native-engine.ts';

const fixture = useContexts();

const rejectionsOf = ({ context }: { readonly context: Context }): string[] =>
  nativeContext(context).resources.rejections.map(({ name, reason }) => `${name}: ${reason}`);

describe('UCX_ACC_DEVICES', () => {
  it('opens only the named cards', async () => {
    const node = fixture.node({ cards: 3 });
    const one = await fixture.openOn(node, { config: { ACC_DEVICES: 'gaudi[0-1]' } });
    const two = await fixture.openOn(node, { config: { ACC_DEVICES: '^gaudi[0-1]' } });
    expect(rejectionsOf(one)).toEqual(['gaudi2: excluded by UCX_ACC_DEVICES']);
    expect(rejectionsOf(two)).toEqual(['gaudi0: excluded by UCX_ACC_DEVICES', 'gaudi1: excluded by UCX_ACC_DEVICES']);
    const handle = device(two, 4096, 2);
    const result = await two.endpoint.put(new Uint8Array(4096).fill(7), rkeyOf(two, handle));
    expect(result).toMatchObject({ transport: 'gaudi_cpy', device: 'gaudi2' });
    expect(two.endpoint.explain('put', new Uint8Array(1), rkeyOf(two, handle)).toString()).toContain(
      'not used: gaudi0: excluded by UCX_ACC_DEVICES',
    );
    const error = await failureOf(() => device(one, 4096, 2));
    expect(error.message).toMatch(/sysDevice/);
  });

  it('without any card is reported when device memory is requested', async () => {
    const stack = await fixture.open({ context: { env: { UCX_ACC_DEVICES: '^gaudi*' } } });
    const error = await failureOf(() => device(stack, 4096));
    expect(error).toMatchObject({ code: 'ERR_UNSUPPORTED' });
    expect(error.message).toContain('gaudi0: excluded by UCX_ACC_DEVICES');
    expect(error.message).toMatch(/gaudi_copy: .*no card is selected: UCX_ACC_DEVICES excludes all cards/);
  });

  it('is refused if the transports were requested by name', async () => {
    const options = { node: fixture.node(), config: { TLS: 'gaudi', ACC_DEVICES: '^gaudi*' } };
    expect(await failureOf(() => Context.create(fixture.quiet(options)))).toMatchObject({
      code: 'ERR_GAUDI_DEVICE_NOT_FOUND',
    });
  });
});

describe('UCX_NET_DEVICES', () => {
  const other = Object.entries(networkInterfaces()).find(([, of]) =>
    of?.some((each) => !each.internal && !each.scopeid),
  );

  it.skipIf(other === undefined).each([['^lo'], [`lo,${other?.[0]}`]])(
    'may name the loopback device: %s (needs a network device besides lo)',
    async (list) => {
      // Without the warning that it is not available.
      const { context } = await fixture.open({ context: { config: { TLS: 'self,tcp', NET_DEVICES: list } } });
      expect(context.closed).toBe(false);
    },
  );
});

describe('UCX_SHM_DEVICES and UCX_SELF_DEVICES', () => {
  it('select the devices of one type each', async () => {
    const noShm = await fixture.open({ context: { config: { SHM_DEVICES: '^memory' } } });
    expect(noShm.endpoint.transports).toContain('self/memory');
    expect(noShm.endpoint.transports.filter((name) => /posix|cma/.test(name))).toEqual([]);
    expect(rejectionsOf(noShm)).toEqual(['memory: excluded by UCX_SHM_DEVICES']);
    const noSelf = await fixture.open({ context: { config: { SELF_DEVICES: '^memory' } } });
    expect(noSelf.endpoint.transports).not.toContain('self/memory');
    expect(rejectionsOf(noSelf)).toEqual(['memory: excluded by UCX_SELF_DEVICES']);
  });

  it('can exclude everything', async () => {
    const config = { TLS: 'self,posix', SELF_DEVICES: '^memory', SHM_DEVICES: '^memory' };
    const error = await failureOf(() => Context.create(fixture.quiet({ node: fixture.node(), config })));
    expect(error).toMatchObject({ code: 'ERR_NO_TRANSPORT' });
    expect(error.message).toMatch(/memory: excluded by UCX_SELF_DEVICES.*memory: excluded by UCX_SHM_DEVICES/);
  });
});

describe('device memory whose transport is excluded', () => {
  it.each([
    ['UCX_TLS', '^gaudi', /gaudi_cpy: excluded by UCX_TLS/],
    ['UCX_TLS', 'shm,self', /gaudi_cpy: excluded by UCX_TLS/],
    ['UCX_ACC_DEVICES', '^gaudi*', /gaudi0: excluded by UCX_ACC_DEVICES/],
  ])('is refused with the reason: %s=%s', async (variable, value, reason) => {
    const stack = await fixture.open({ context: { env: { [variable]: value } } });
    const error = await failureOf(() =>
      stack.context.memMap({ allocate: 64, memoryType: MemoryType.GAUDI, sysDevice: 0 }),
    );
    expect(error.message).toMatch(reason);
  });

  it('that a peer offers cannot be reached, for the same reason', async () => {
    const node = fixture.node();
    const owner = await fixture.openOn(node, { config: { TLS: 'gaudi,cma' } });
    const other = await fixture.openOn(node, { config: { TLS: 'cma' } });
    const endpoint = other.worker.endpoint(owner.worker.address());
    const rkey = endpoint.unpackRkey(owner.context.packRkey(device(owner, 4096)));
    const error = await failureOf(() => endpoint.put(new Uint8Array(16), rkey));
    expect(error).toMatchObject({ code: 'ERR_UNREACHABLE' });
    expect(error.message).toMatch(/cma\/memory: .*; gaudi_cpy: excluded by UCX_TLS/);
  });
});

describe('unknown names', () => {
  const warned = async (options: ContextOptions): Promise<string[]> => {
    fixture.allow(/is not available/);
    const before = fixture.records.length;
    await fixture.open({ context: options });
    return fixture.records.slice(before).map(({ message }) => message);
  };

  it('cause one warning each, with the nearest name', async () => {
    const messages = await warned({
      env: { UCX_TLS: '^gaudi_ipcc', UCX_NET_DEVICES: 'lo,nic9', UCX_ACC_DEVICES: 'gaudi0,gaudi9' },
    });
    expect(messages.filter((message) => message.includes('not available'))).toEqual([
      expect.stringContaining(
        "transport 'gaudi_ipcc' is not available (maybe: gaudi_ipc?), please use one or more of:",
      ),
      expect.stringContaining("network device 'nic9' is not available"),
      expect.stringContaining("accelerator device 'gaudi9' is not available (maybe: gaudi0?)"),
    ]);
  });

  it('cause no warning with UCX_WARN_INVALID_CONFIG=n', async () => {
    const messages = await warned({ env: { UCX_NET_DEVICES: 'nic9', UCX_WARN_INVALID_CONFIG: 'n' } });
    expect(messages.filter((message) => message.includes('not available'))).toEqual([]);
  });
});
