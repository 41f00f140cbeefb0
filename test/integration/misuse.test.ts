/** Every public method with bad values in place of each argument: errors are typed, nothing leaks, and the library stays usable. */

import { join } from 'node:path';
import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { type ConnectionRequest, Context, type EngineName, MemoryType, type Request } from '../../src/index.ts';
import { close as closeDescriptor } from '../../src/sys/index.ts';
import { systemClock } from '../../src/ucs/sys/clock.ts';
import { ROOT } from '../fixtures/built.ts';
import { device, rkeyOf, type Stack, useContexts } from '../fixtures/contexts.ts';
import { type Calls, Misuse, methodsOf, methodsOfInterface } from '../fixtures/misuse.ts';
import { ENGINES, expectSame, pattern } from '../fixtures/pair.ts';

const BYTES = 64;
const ABORTED = { signal: AbortSignal.abort() };
const NOWHERE = { address: '127.0.0.1', port: 1 };

interface Closable {
  close(options?: { readonly force?: boolean }): unknown;
}

/** Frees a request that a call has returned. */
function free(result: unknown): void {
  if (typeof result !== 'object' || result === null) return;
  const request = result as Request;
  request.cancel();
  if (request.isCompleted) request.free();
  else request.callback = () => request.free();
}

const close = (made: unknown): unknown => (made as Closable | undefined)?.close({ force: true });

/** Valid calls of everything that has arguments. */
function callsOf({ context, worker }: Stack, parts: Parts): Readonly<Record<string, Calls>> {
  const { bytes, host, hbm, rkey } = parts;
  const list = [{ local: host, rkey, byteLength: 8 }];
  return {
    context: {
      worker: { args: () => [{}], undo: close },
      memMap: {
        args: () => [{ allocate: 64, protection: ['local-read'] }],
        undo: (made) => context.memUnmap(made as never),
      },
      memUnmap: { args: () => [context.memMap({ allocate: 64 })] },
      memAdvise: { args: () => [host, 'willneed', {}] },
      memQuery: { args: () => [{ address: host.address, byteLength: 1 }] },
      exportDmabuf: {
        args: () => [{ address: hbm.address, byteLength: 1, sysDevice: 0 }],
        undo: (exported) => closeDescriptor((exported as { fd: number }).fd),
      },
      memoryUnmapped: { args: () => [4096, 4096] },
      memoryTypeEvent: {
        args: () => [{ event: 'freed', address: 2n ** 60n, byteLength: 1, memoryType: MemoryType.GAUDI, sysDevice: 0 }],
      },
      packRkey: { args: () => [hbm] },
      device: { args: () => [0] },
      metrics: { args: () => [{ registerMetric: () => {}, getSingleMetric: () => undefined }] },
    },
    worker: {
      endpoint: { args: () => [worker.address(), {}], undo: close },
      listener: { args: () => [{}], undo: close },
      connectNbx: { args: () => [NOWHERE, {}], undo: free },
      connect: { args: () => [{ ...NOWHERE, ...ABORTED }] },
      wait: { args: () => [ABORTED] },
      serve: { args: () => [ABORTED.signal] },
      tagRecvNbx: { args: () => [bytes, 0, BYTES, 1, 1, {}], undo: free },
      tagProbe: { args: () => [1, 1, false] },
      tagMessageRecvNbx: { args: () => [bytes, 0, BYTES, { senderTag: 1n, byteLength: 1 }, {}], undo: free },
      tagRecv: { args: () => [bytes, { tag: 99, ...ABORTED }] },
      setAmHandler: { args: () => [9, undefined] },
      messages: { args: () => [10, {}], undo: (queue) => (queue as { return(): unknown }).return() },
      notifications: { args: () => [{}], undo: (loop) => (loop as { return(): unknown }).return() },
      setNotificationHandler: { args: () => [undefined] },
      flushNbx: { args: () => [{}], undo: free },
      flush: { args: () => [ABORTED] },
    },
    endpoint: {
      putNbx: { args: () => [bytes, 0, 8, rkey, 0, { notify: bytes, notifyId: 11 }], undo: free },
      getNbx: { args: () => [bytes, 0, 8, rkey, 0, {}], undo: free },
      atomicNbx: { args: () => ['add', 1, rkey, 0, {}], undo: free },
      tagSendNbx: { args: () => [bytes, 0, 8, 77, {}], undo: free },
      tagSendSyncNbx: { args: () => [bytes, 0, 8, 78, {}], undo: free },
      amSendNbx: { args: () => [11, undefined, bytes, 0, 8, {}], undo: free },
      streamSendNbx: { args: () => [bytes, 0, 8, {}], undo: free },
      streamRecvNbx: { args: () => [bytes, 0, 8, {}], undo: free },
      streamDataRelease: { args: () => [bytes] },
      prepareList: { args: () => ['put', [{ local: host, rkey, byteLength: 8 }], {}] },
      putListNbx: { args: () => [list, { notify: bytes, notifyId: 11 }], undo: free },
      getListNbx: { args: () => [list, {}], undo: free },
      notifyNbx: { args: () => [bytes, {}], undo: free },
      putList: { args: () => [list, { notify: bytes, notifyId: 11 }] },
      getList: { args: () => [list, {}] },
      notify: { args: () => [bytes, {}] },
      flushNbx: { args: () => [{}], undo: free },
      unpackRkey: { args: () => [context.packRkey(host), {}], undo: (key) => (key as { release(): void }).release() },
      explain: { args: () => ['put', bytes, rkey] },
      put: { args: () => [bytes, rkey, { notify: bytes, notifyId: 11 }] },
      get: { args: () => [bytes, rkey, {}] },
      atomic: { args: () => ['add', 1, rkey, {}] },
      tagSend: { args: () => [bytes, {}] },
      tagSendSync: { args: () => [bytes, ABORTED] },
      amSend: { args: () => [11, bytes, {}] },
      streamSend: { args: () => [bytes, {}] },
      streamRecv: { args: () => [bytes, ABORTED] },
      stream: { args: () => [ABORTED] },
      flush: { args: () => [{}] },
      close: { args: () => [{}], each: () => endpointOf(worker) },
    },
  };

  function endpointOf(of: Stack['worker']): object {
    return of.endpoint(of.address());
  }
}

interface Parts {
  readonly bytes: Uint8Array;
  readonly host: ReturnType<Context['memMap']>;
  readonly hbm: ReturnType<Context['memMap']>;
  readonly rkey: ReturnType<typeof rkeyOf>;
}

/** Methods without arguments. */
const WITHOUT_ARGUMENTS: Readonly<Record<string, readonly string[]>> = {
  context: ['query', 'snapshot', 'stats', 'close'],
  worker: ['address', 'progress', 'arm', 'signal', 'stats', 'fence', 'close'],
  endpoint: ['query', 'streamRecvData', 'fence'],
};

/** Puts and gets, and messages of every kind, between an endpoint and itself. */
async function expectWorks({ context, worker, endpoint }: Stack): Promise<void> {
  const memory = context.memMap({ allocate: 4096 });
  const rkey = endpoint.unpackRkey(context.packRkey(memory));
  const [sent, received] = [pattern(4096, 3), new Uint8Array(4096)];
  await endpoint.put(sent, rkey);
  await endpoint.get(received, rkey);
  expectSame(received, sent);
  received.fill(0);
  await Promise.all([endpoint.tagSend(sent, { tag: 12_345 }), worker.tagRecv(received, { tag: 12_345 })]);
  expectSame(received, sent);
  rkey.release();
  context.memUnmap(memory);
}

describe.each(ENGINES)('over %s', (engine: EngineName) => {
  const fixture = useContexts(engine);

  it('a protection is a list of one or more names', async () => {
    const { context } = await fixture.open();
    const bad = [null, 0, 'local-read', {}, [], ['read'], ['local-read', undefined], [Symbol('s')], [['local-read']]];
    for (const protection of bad) {
      for (const source of [{ allocate: 64 }, { buffer: new Uint8Array(64) }]) {
        expect(() => context.memMap({ ...source, protection } as never)).toThrow(
          expect.objectContaining({
            code: 'ERR_INVALID_PARAM',
            message: expect.stringMatching(
              /protection.*must be a list of one or more of local-read, local-write, remote/,
            ),
          }),
        );
      }
    }
    const memory = context.memMap({ allocate: 64, protection: ['remote-read', 'local-read', 'local-read'] });
    expect(memory.protection).toEqual(['local-read', 'remote-read']);
    expect(inspect(memory)).toContain('protection: local-read, remote-read,');
    expect(inspect(context.memMap({ allocate: 64 }))).not.toContain('protection');
  });

  it('unknown options are refused, with the nearest name', async () => {
    const stack = await fixture.open();
    const { context, worker, endpoint } = stack;
    const memory = context.memMap({ allocate: BYTES });
    const rkey = rkeyOf(stack, memory);
    const bytes = new Uint8Array(BYTES);
    const address = worker.address();
    const calls: readonly (readonly [(options: never) => unknown, string, string])[] = [
      [(options) => Context.create(options), 'enginee', 'engine'],
      [(options) => context.worker(options), 'clientID', 'clientId'],
      [(options) => context.memMap({ allocate: 1, ...(options as object) }), 'memorytype', 'memoryType'],
      [(options) => context.memMap({ allocate: 1, ...(options as object) }), 'protections', 'protection'],
      [(options) => context.memAdvise(memory, 'will-need', options), 'ofset', 'offset'],
      [(options) => worker.endpoint(address, options), 'onerror', 'onError'],
      [(options) => worker.listener(options), 'ports', 'port'],
      [(options) => worker.connect({ ...NOWHERE, ...(options as object) }), 'signall', 'signal'],
      [(options) => worker.wait(options), 'singal', 'signal'],
      [(options) => worker.tagRecv(bytes, options), 'tags', 'tag'],
      [(options) => worker.messages(12, options), 'signals', 'signal'],
      [(options) => worker.flush(options), 'signals', 'signal'],
      [(options) => endpoint.unpackRkey(context.packRkey(memory), options), 'raws', 'raw'],
      [(options) => endpoint.put(bytes, rkey, options), 'remoteOfset', 'remoteOffset'],
      [(options) => endpoint.get(bytes, rkey, options), 'bytelength', 'byteLength'],
      [(options) => endpoint.atomic('add', 1, rkey, options), 'bit', 'bits'],
      [(options) => endpoint.tagSend(bytes, options), 'tagg', 'tag'],
      [(options) => endpoint.amSend(3, bytes, options), 'protocoll', 'protocol'],
      [(options) => endpoint.streamSend(bytes, options), 'signall', 'signal'],
      [(options) => endpoint.streamRecv(bytes, options), 'waitall', 'waitAll'],
      [(options) => endpoint.putList([], options), 'notifyy', 'notify'],
      [(options) => endpoint.prepareList('put', [], options), 'strickt', 'strict'],
      [
        (options) => endpoint.putList([{ local: bytes, rkey, byteLength: 1, ...(options as object) }]),
        'localOfset',
        'localOffset',
      ],
      [(options) => endpoint.notify(bytes, options), 'singal', 'signal'],
      [(options) => worker.notifications(options), 'signals', 'signal'],
      [(options) => endpoint.flush(options), 'signall', 'signal'],
      [(options) => memory.read(undefined, options), 'lenght', 'length'],
    ];
    for (const [call, given, meant] of calls) {
      const refusal = expect.objectContaining({
        code: 'ERR_INVALID_PARAM',
        message: expect.stringContaining(`did you mean ${meant}?`),
      });
      await expect((async () => call({ [given]: 1 } as never))(), given).rejects.toEqual(refusal);
    }
    await expectWorks(stack);
  });

  it('an offset or a length of another type is refused by name', async () => {
    const stack = await fixture.open();
    const { context, endpoint } = stack;
    const host = context.memMap({ allocate: BYTES });
    const rkey = rkeyOf(stack, host);
    const bytes = new Uint8Array(BYTES);
    const offset = [{ memory: bytes, offset: 8n }] as never;
    const byteLength = [{ memory: bytes, byteLength: 8n }] as never;
    const calls: readonly (readonly [() => unknown, string])[] = [
      [() => endpoint.put(bytes, rkey, { localOffset: 8n as never }), 'localOffset'],
      [() => endpoint.put(offset, rkey), 'localOffset'],
      [() => endpoint.put(byteLength, rkey), 'byteLength'],
      [() => endpoint.getNbx(offset, 0, 0, rkey, 0), 'localOffset'],
      [() => endpoint.putNbx(byteLength, 0, 0, rkey, 0), 'byteLength'],
      [() => endpoint.tagSend(offset), 'iov'],
      [() => endpoint.tagSend(byteLength), 'byteLength'],
      [() => context.memAdvise(host, 'will-need', { offset: 8n as never }), 'offset'],
    ];
    for (const [call, argument] of calls) {
      const refusal = { code: 'ERR_INVALID_PARAM', details: { argument } };
      await expect((async () => call())(), String(call)).rejects.toMatchObject(refusal);
    }
    await expectWorks(stack);
  });

  it('a signal must be an AbortSignal', async () => {
    const stack = await fixture.open();
    const { worker, endpoint } = stack;
    const bytes = new Uint8Array(BYTES);
    const options = { signal: { aborted: false } } as never;
    const calls: readonly (() => unknown)[] = [
      () => worker.messages(12, options),
      () => worker.notifications(options),
      () => worker.serve({ aborted: false } as never),
      () => worker.wait(options),
      () => worker.flush(options),
      () => worker.tagRecv(bytes, options),
      () => endpoint.tagSend(bytes, options),
      () => endpoint.stream(options).next(),
    ];
    for (const call of calls) {
      const refusal = { code: 'ERR_INVALID_PARAM', details: { argument: 'signal' } };
      await expect((async () => call())(), String(call)).rejects.toMatchObject(refusal);
    }
    // The refused loop has taken no handler.
    await worker.messages(12).return();
    await expectWorks(stack);
  });

  it.each(['context', 'worker', 'endpoint'] as const)('every argument of the %s is checked', async (name) => {
    // Effects of misuse on the connection are reported by errors, and logged as well.
    fixture.allow(/./);
    const stack = await fixture.open();
    const bytes = new Uint8Array(BYTES);
    const hbm = device(stack, BYTES);
    const host = stack.context.memMap({ allocate: BYTES });
    const rkey = rkeyOf(stack, host);
    stack.worker.setAmHandler(11, () => {});
    const calls = callsOf(stack, { bytes, host, hbm, rkey })[name]!;
    const known = [...Object.keys(calls), ...WITHOUT_ARGUMENTS[name]!].sort();
    expect(methodsOfInterface(join(ROOT, `src/ucp/api/${name}.ts`), name)).toEqual(known);
    const misuse = new Misuse(host, hbm, rkey, stack.endpoint);
    await misuse.tryMethods(name, stack[name], calls);
    await expectWorks(stack);
    await stack.context.close();
    await misuse.settled();
    expect(misuse.surprises).toEqual([]);
    expect(misuse.calls).toBeGreaterThan(100);
  });

  it('every argument of Context.create is checked', async () => {
    fixture.allow(/./);
    const node = fixture.node();
    const misuse = new Misuse();
    const args = (): unknown[] => [
      {
        node,
        env: {},
        envPrefix: 'x',
        configDirectories: [],
        config: { TLS: 'self' },
        engine,
        features: ['am'],
        logSink: () => {},
        clock: systemClock,
      },
    ];
    await misuse.tryMethods('Context', Context, { create: { args, undo: close } });
    await misuse.settled();
    expect(misuse.surprises).toEqual([]);
  });

  it('every argument of a listener, its requests and their endpoints is checked', async () => {
    fixture.allow(/./);
    const stack = await fixture.open({ context: { config: { TLS: 'tcp,self' } } });
    const client = await fixture.openOn(stack.node, { config: { TLS: 'tcp,self', ACC_DEVICES: '' } });
    const listener = stack.worker.listener();
    const serving = new AbortController();
    const served = client.worker.serve(serving.signal);
    const misuse = new Misuse(listener);
    const abused = stack.worker.listener();
    await misuse.tryMethods('listener', abused, { next: { args: () => [ABORTED] } });
    await abused.close();
    const ask = async (): Promise<ConnectionRequest> => {
      void client.worker.connect({ address: '127.0.0.1', port: listener.port }).catch(() => {});
      return (await listener.next())!;
    };
    const request = await ask();
    expect(methodsOf(request).filter((method) => !['accept', 'reject', 'query'].includes(method))).toEqual([]);
    await misuse.tryMethods('request', request, { accept: { args: () => [{}] }, reject: { args: () => [0, ''] } });
    await expectWorks(stack);
    await listener.close();
    serving.abort();
    await served;
    await client.context.close();
    await stack.context.close();
    await misuse.settled();
    expect(misuse.surprises).toEqual([]);
  });
});
