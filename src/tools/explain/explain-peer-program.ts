/** Peer of `gaudi-ucx explain --peer process`: a process that sends its worker address and the remote key of its memory to its parent, and exits with it. */

import { Context } from '../../assembly/context.ts';
import { labelsEmulation } from '../../assembly/open-node.ts';
import { setParentDeathSignal } from '../../sys/index.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import type { PeerMemory, PeerReply } from './peer.ts';

async function share({ memoryType, sysDevice, byteLength, ...options }: PeerMemory): Promise<Context | undefined> {
  let reply: PeerReply;
  let context: Context | undefined;
  try {
    context = await Context.create(options);
    const memory = context.memMap({
      allocate: byteLength,
      memoryType,
      ...(sysDevice === undefined ? {} : { sysDevice }),
    });
    // The worker receives nothing; with automatic progress it would reply to an endpoint that is already closed.
    const worker = context.worker({ progress: 'manual' });
    reply = { address: worker.address(), key: context.packRkey(memory) };
  } catch (error) {
    if (!isUcxError(error)) throw error;
    reply = { failure: `${error.message} (${error.code})` };
  }
  // If the parent has just died, the send fails; the disconnect event that follows closes the context.
  if (process.connected) process.send?.(reply, undefined, undefined, () => {});
  return context;
}

setParentDeathSignal();
labelsEmulation();
// A terminal sends its signals to all processes of the group: the parent decides.
process.on('SIGINT', () => {});
let opened: Promise<Context | undefined> | undefined;
process.on('message', (memory: PeerMemory) => {
  opened = share(memory);
});
process.on('disconnect', () => {
  void opened?.then((context) => context?.close());
});
