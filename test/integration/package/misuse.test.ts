/** Every public method with bad values in place of each argument: errors are typed, nothing leaks, and the library stays usable. */

import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { type AmMessage, type ConnectionRequest, Context, type EngineName, type Request } from '../../../src/index.ts';
import { systemClock } from '../../../src/ucs/sys/clock.ts';
import { type Calls, Misuse, uncovered } from '../../fixtures/calls/misuse.ts';
import { publicCalls } from '../../fixtures/calls/public-calls.ts';
import {
  abortsSoon,
  BYTES,
  close,
  EXEMPT,
  exportedCalls,
  free,
  NOWHERE,
  returnedCalls,
  type StackParts,
  stackCalls,
} from '../../fixtures/calls/ucp-calls.ts';
import { device, rkeyOf, type Stack, useContexts } from '../../fixtures/contexts.ts';
import { ENGINES, expectSame, pattern } from '../../fixtures/pair.ts';

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

const DECLARED = publicCalls('src/index.ts');
const REQUEST_CALLS: Calls = { accept: { args: () => [{}] }, reject: { args: () => [0, ''] } };
/** More than the calls of messages with bad values. */
const MESSAGES = 1000;

describe.each(ENGINES)('over %s', (engine: EngineName) => {
  const fixture = useContexts(engine);

  /** A stack, with memory and a handler for the calls. */
  async function setUp(): Promise<{ readonly stack: Stack; readonly parts: StackParts }> {
    // Effects of misuse on the connection are reported by errors, and logged as well.
    fixture.allow(/./);
    const stack = await fixture.open();
    const hbm = device(stack, BYTES);
    const host = stack.context.memMap({ allocate: BYTES });
    stack.worker.setAmHandler(11, () => {});
    return { stack, parts: { bytes: new Uint8Array(BYTES), host, hbm, rkey: rkeyOf(stack, host) } };
  }

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
        'ofset',
        'offset',
      ],
      [(options) => endpoint.notify(bytes, options), 'singal', 'signal'],
      [(options) => worker.notifications(options), 'signals', 'signal'],
      [(options) => endpoint.flush(options), 'signall', 'signal'],
      [(options) => memory.read(undefined, options), 'byteLenght', 'byteLength'],
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
      [() => endpoint.put(bytes, rkey, { offset: 8n as never }), 'offset'],
      [() => endpoint.put(offset, rkey), 'offset'],
      [() => endpoint.put(byteLength, rkey), 'byteLength'],
      [() => endpoint.getNbx(offset, 0, 0, rkey, 0), 'offset'],
      [() => endpoint.putNbx(byteLength, 0, 0, rkey, 0), 'byteLength'],
      [() => endpoint.tagSend(offset), 'local[0].offset'],
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
    const { stack, parts } = await setUp();
    const misuse = new Misuse(parts.host, parts.hbm, parts.rkey, stack.endpoint);
    const type = `${name[0]!.toUpperCase()}${name.slice(1)}`;
    await misuse.tryMethods(name, stack[name], stackCalls(stack, parts)[name]!, DECLARED.get(type));
    await expectWorks(stack);
    await stack.context.close();
    await misuse.settled();
    expect(misuse.surprises).toEqual([]);
    expect(misuse.accepted).toEqual([]);
    expect(misuse.refused).toEqual([]);
    expect(misuse.calls).toBeGreaterThan(100);
  });

  it('every public call has a case', async () => {
    const { stack, parts } = await setUp();
    const { context, worker, endpoint } = stackCalls(stack, parts);
    const listener = stack.worker.listener();
    const request = stack.worker.tagRecvNbx(parts.bytes, 0, BYTES, 0x7777) as Request;
    const others = [
      ...returnedCalls(stack, { ...parts, listener, request, nextMessage: () => expect.fail() }),
      ...exportedCalls(),
    ];
    const walked = {
      ...Object.fromEntries(others.map(({ type, calls }) => [type, calls])),
      ...{ Context: context!, Worker: worker!, Endpoint: endpoint!, ConnectionRequest: REQUEST_CALLS },
      // The test below has its arguments.
      'typeof Context': { create: { args: () => [] } },
    };
    expect(uncovered(DECLARED, walked, EXEMPT)).toEqual([]);
    const { memQuery: _, ...withoutOne } = context!;
    expect(uncovered(DECLARED, { ...walked, Context: withoutOne }, { ...EXEMPT, 'Worker.gone': '' })).toEqual([
      'Context.memQuery has no misuse case',
      'Worker.gone is not public',
    ]);
    await listener.close();
    free(request);
  });

  it('every argument of what they return is checked', async () => {
    const { stack, parts } = await setUp();
    const { worker, endpoint } = stack;
    const messages: AmMessage[] = [];
    worker.setAmHandler(12, (message) => messages.push(message.retain()));
    for (let sent = 0; sent < MESSAGES; sent++) await endpoint.amSend(12, new Uint8Array(BYTES));
    await endpoint.flush();
    while (messages.length < MESSAGES) worker.progress();
    const listener = worker.listener();
    const request = worker.tagRecvNbx(parts.bytes, 0, BYTES, 0x7777) as Request;
    const misuse = new Misuse(parts.host, parts.hbm, parts.rkey, stack.endpoint, messages[0]!);
    const nextMessage = (): AmMessage => messages.pop()!;
    for (const { type, object, calls } of returnedCalls(stack, { ...parts, nextMessage, listener, request })) {
      await misuse.tryMethods(type, object, calls, DECLARED.get(type));
    }
    // Before the promises settle, because some wait for a request.
    await listener.close();
    free(request);
    await misuse.settled();
    expect(misuse.surprises).toEqual([]);
    expect(misuse.accepted).toEqual([]);
    expect(misuse.refused).toEqual([]);
    for (const message of messages) message.release();
    await expectWorks(stack);
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
    await misuse.tryMethods('Context', Context, { create: { args, undo: close } }, DECLARED.get('typeof Context'));
    await misuse.settled();
    expect(misuse.surprises).toEqual([]);
    expect(misuse.accepted).toEqual([]);
    expect(misuse.refused).toEqual([]);
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
    await misuse.tryMethods('listener', abused, { next: { args: () => [abortsSoon()] } });
    await abused.close();
    const ask = async (): Promise<ConnectionRequest> => {
      void client.worker.connect({ address: '127.0.0.1', port: listener.port }).catch(() => {});
      return (await listener.next())!;
    };
    const request = await ask();
    await misuse.tryMethods('request', request, REQUEST_CALLS, DECLARED.get('ConnectionRequest'));
    await expectWorks(stack);
    await listener.close();
    serving.abort();
    await served;
    await client.context.close();
    await stack.context.close();
    await misuse.settled();
    expect(misuse.surprises).toEqual([]);
    expect(misuse.accepted).toEqual([]);
    expect(misuse.refused).toEqual([]);
  });
});

it('every argument of functions, constructors and Config is checked', async () => {
  const misuse = new Misuse();
  for (const { type, object, calls } of exportedCalls()) {
    await misuse.tryMethods(type, object, calls, DECLARED.get(type));
  }
  await misuse.settled();
  expect(misuse.surprises).toEqual([]);
  expect(misuse.accepted).toEqual([]);
  expect(misuse.refused).toEqual([]);
});
