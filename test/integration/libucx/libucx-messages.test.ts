/** Active messages over libucp: those without a handler, and those of ids that belong to the engine. */

import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { type Endpoint, type Request, Status } from '../../../src/index.ts';
import { UCP_REQUEST_PARAM } from '../../../src/libucx/c/abi.ts';
import { Fields } from '../../../src/libucx/c/fields.ts';
import type { EngineEndpoint } from '../../../src/libucx/engine/engine.ts';
import { failureOf, rkeyOf, type Stack, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { built } from '../../fixtures/tools/built.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const { libucp, skipReason } = installedLibucp();
if (skipReason !== undefined) console.log(`libucx-messages: skipped: ${skipReason}`);
const PROGRAM = built(new URL('../../fixtures/programs/libucx-messages-program.ts', import.meta.url));
/** Of notifications, of close messages, and of operations on memory of cards. */
const OWN_IDS = [65_532, 65_533, 65_534];

const contexts = useContexts();
const open = (): Promise<Stack> =>
  contexts.open({ context: { engine: 'libucx', config: { TLS: 'tcp,self', NET_DEVICES: 'lo' } } });

/** Sends a message as a program does that does not request a reply endpoint. */
function sendWithoutReply(endpoint: Endpoint, id: number): void {
  using param = new Fields(UCP_REQUEST_PARAM);
  const { handle } = endpoint as EngineEndpoint;
  expect(libucp!.functions.ucp_am_send_nbx(handle, id, 0, 0, 0, 0, param.address)).toBe(0);
}

describe.skipIf(skipReason !== undefined)(
  'active messages over libucp without a handler (needs libucp)',
  { timeout: 60_000 },
  () => {
    it('are dropped, short and long, and their senders get OK', () => {
      // A process, which libucp must not end.
      const { status, signal, stdout, stderr } = spawnSync(process.execPath, [PROGRAM], {
        encoding: 'utf8',
        // The C library fills the memory that libucp allocates.
        env: environment({ MALLOC_PERTURB_: '170' }),
        timeout: 30_000,
      });
      expect([status, signal], stderr).toEqual([0, null]);
      expect(stdout).toBe('[]\n');
    });
  },
);

describe.skipIf(skipReason !== undefined)(
  'ids of active messages that belong to the engine over libucp (needs libucp)',
  () => {
    it.each(OWN_IDS)('%i can be neither received nor sent by a program', async (id) => {
      const stack = await open();
      const { context, endpoint, worker } = stack;
      const rkey = rkeyOf(stack, context.memMap({ allocate: 8 }));
      const notify = { notify: Uint8Array.of(1), notifyId: id };
      const bytes = new Uint8Array(8);
      const calls: readonly (() => unknown)[] = [
        () => worker.setAmHandler(id, () => {}),
        () => endpoint.amSend(id, bytes),
        () => endpoint.amSendNbx(id, undefined, bytes, 0, 8),
        () => endpoint.put(bytes, rkey, notify),
        () => endpoint.putNbx(bytes, 0, 8, rkey, 0, notify),
        () => endpoint.putList([{ local: bytes, rkey, byteLength: 8 }], notify),
      ];
      const rule = expect.stringContaining('but not 65532, 65533, 65534');
      for (const call of calls)
        expect(await failureOf(call)).toMatchObject({ code: 'ERR_INVALID_PARAM', message: rule });
    });

    it('are dropped from programs that request no reply endpoint, or if they have no meaning', async () => {
      const { endpoint, worker } = await open();
      const notifications = worker.notifications();
      // Connects.
      await endpoint.amSend(1, new Uint8Array(1));
      for (const id of OWN_IDS) sendWithoutReply(endpoint, id);
      const header = new Uint8Array(40).fill(255);
      const data = { local: new Uint8Array(2 ** 20), localOffset: 0, byteLength: 2 ** 20 };
      const sent = (endpoint as EngineEndpoint).sendOwn(65_534, header, data, {
        noImmediateCompletion: true,
      }) as Request;
      await endpoint.notify(Uint8Array.of(1));
      expect((await notifications.next()).value!.bytes).toEqual(Uint8Array.of(1));
      while (!sent.isCompleted) {
        worker.progress();
        await new Promise(setImmediate);
      }
      expect(sent.status).toBe(Status.OK);
      sent.free();
    });
  },
);

describe.skipIf(skipReason !== undefined)('a retained long active message over libucp (needs libucp)', () => {
  it.each(['tcp,self', 'posix,self'])('is not received from a sender that has closed, over %s', async (tls) => {
    const config = { TLS: tls };
    const two = await contexts.open({ context: { engine: 'libucx', config } });
    const one = await contexts.openOn(two.node, { engine: 'libucx', config });
    const endpoint = one.worker.endpoint(two.worker.address());
    const gone = new Promise<Status>((resolve) => {
      two.worker.endpoint(one.worker.address(), { onError: (_endpoint, status) => resolve(status) });
    });
    await using messages = two.worker.messages(8);
    // Whether the receiver gives the data back or the sender closes first decides how the send ends.
    const sent = Promise.allSettled([endpoint.amSend(8, new Uint8Array(2 ** 20))]);
    const { value: message } = await messages.next();
    const stop = new AbortController();
    const served = two.worker.serve(stop.signal);
    await endpoint.close({ force: true });
    expect(await gone).toBe(Status.CONNECTION_RESET);
    expect(await failureOf(() => message!.bytes())).toMatchObject({ code: 'ERR_CONNECTION_RESET' });
    // As over the native engine: a message is received once.
    expect(await failureOf(() => message!.bytes())).toMatchObject({ code: 'ERR_INVALID_PARAM' });
    await sent;
    stop.abort();
    await served;
  });
});
