/** Components that a program adds to its context: they are used, excluded, explained, counted and closed as those of the library. */

import { describe, expect, it } from 'vitest';
import { toyComponent } from '../../../examples/memory-expert.ts';
import { Context, type ContextOptions, isUcxError, MemoryType } from '../../../src/index.ts';
import { openFileDescriptors } from '../../../src/sys/index.ts';
import type { Component } from '../../../src/uct.ts';

function open(options: ContextOptions = {}, config: Record<string, string> = {}): Promise<Context> {
  const settings = { TLS: 'all', ACC_DEVICES: 'toy0', ...config };
  return Context.create({
    driver: 'emulator',
    configDirectories: [],
    env: {},
    engine: 'native',
    components: [toyComponent],
    ...options,
    config: settings,
  });
}

async function refusal(options: ContextOptions): Promise<{ readonly code: string; readonly message: string }> {
  try {
    await (await open(options)).close();
  } catch (error) {
    if (isUcxError(error)) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}

describe('a component of the program', () => {
  it('answers whose memory an address is, also without the cache', async () => {
    for (const cache of ['y', 'n']) {
      const context = await open({}, { MEMTYPE_CACHE: cache });
      const memory = context.memMap({ allocate: 10_000, memoryType: MemoryType.ROCM });
      expect(context.memQuery({ address: memory.address + 9_000n, byteLength: 1000 })).toEqual({
        memoryType: MemoryType.ROCM,
        sysDevice: 100,
        baseAddress: memory.address,
        allocLength: 10_000,
      });
      const exported = context.exportDmabuf(memory);
      expect(exported.fd).toBeGreaterThan(2);
      exported.close();
      context.memUnmap(memory);
      await context.close();
    }
  });

  it('moves the bytes of its memory, and is explained and counted', async () => {
    const context = await open();
    const worker = context.worker();
    const endpoint = worker.endpoint(worker.address());
    const memory = context.memMap({ allocate: 100_000, memoryType: MemoryType.ROCM });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    const source = new Uint8Array(100_000).map((_, i) => i * 7);
    const put = await endpoint.put(source, rkey);
    expect(put).toMatchObject({ transport: 'toy_copy', device: 'toy0' });
    const target = new Uint8Array(100_000);
    await endpoint.get(target, rkey);
    expect(Buffer.compare(target, source)).toBe(0);
    expect(endpoint.explain('put', source, rkey).toString()).toContain('toy_copy/toy0');
    expect(JSON.stringify(context.stats())).toContain('"uct_md","name":"toy_copy"');
    await context.close();
  });

  it('is selected by UCX_TLS and UCX_ACC_DEVICES', async () => {
    const context = await open({}, { TLS: '^toy', ACC_DEVICES: '' });
    expect(() => context.memMap({ allocate: 4096, memoryType: MemoryType.ROCM })).toThrow(
      /no memory domain allocates rocm memory.*toy_copy: excluded by UCX_TLS/,
    );
    await context.close();
    const other = await open({}, { ACC_DEVICES: 'gaudi0' });
    expect(() => other.memMap({ allocate: 4096, memoryType: MemoryType.ROCM })).toThrow(/allocates rocm memory/);
    await other.close();
  });

  it('is closed with its context', async () => {
    await (await open()).close();
    const before = openFileDescriptors();
    const context = await open();
    context.memMap({ allocate: 4096, memoryType: MemoryType.ROCM });
    await context.close();
    expect(openFileDescriptors()).toBe(before);
  });

  it.each([
    ['no list', 7, /components must be a list of components/],
    ['no component', [{ name: 'x' }], /components\[0\] must be a component: a name, transports and openMd/],
    ['an empty name', [{ ...toyComponent, name: '' }], /components\[0\].name must be a non-empty string/],
    ['a name of the library', [{ ...toyComponent, name: 'tcp' }], /components\[0\].name must be unique, got "tcp"/],
    ['the same name twice', [toyComponent, toyComponent], /components\[1\].name must be unique/],
  ])('is rejected: %s', async (_, components, message) => {
    const error = await refusal({ components: components as unknown as readonly Component[] });
    expect(error).toMatchObject({ code: 'ERR_INVALID_PARAM', message: expect.stringMatching(message) });
  });

  it('has a name that no component of the library has', async () => {
    for (const name of ['self', 'posix', 'cma', 'tcp', 'ib', 'gaudi_copy', 'gaudi_ipc']) {
      const error = await refusal({ components: [{ ...toyComponent, name }] });
      expect(error.message).toContain('must be unique');
    }
  });

  it('needs the native engine, which `auto` chooses', async () => {
    const error = await refusal({ engine: 'libucx' });
    expect(error).toMatchObject({ code: 'ERR_UNSUPPORTED', message: expect.stringContaining('engine native') });
    const context = await open({ engine: 'auto' });
    expect(context.engine).toMatchObject({ name: 'native' });
    await context.close();
  });
});
