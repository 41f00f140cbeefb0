/** Exchange among the children of one process, over the channels that child_process.fork() creates. */

import type { ChildProcess } from 'node:child_process';
import { checkMethods } from '../../ucs/type/check-options.ts';
import { invalidParam, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Exchange } from './exchange.ts';

const GIVEN = 'gaudi-ucx/coll: given';
const ALL = 'gaudi-ucx/coll: all';

type Message = { readonly [GIVEN]?: string; readonly [ALL]?: readonly string[] };

/** The child's end of the channel to its parent: `process`. */
export interface ParentChannel {
  /** Sends a message to the parent, and calls back with the error if the channel is closed. */
  send?(message: unknown, handle: undefined, options: undefined, callback: (error: Error | null) => void): unknown;
  /** Adds a listener of messages. */
  on(event: 'message', listener: (message: unknown) => void): unknown;
  /** Adds a listener for the end of the channel. */
  on(event: 'disconnect', listener: () => void): unknown;
  /** Removes a listener of messages. */
  off(event: 'message', listener: (message: unknown) => void): unknown;
  /** Removes a listener for the end of the channel. */
  off(event: 'disconnect', listener: () => void): unknown;
}

/**
 * Serves the exchanges of forked children, one after the other. An exchange does not wait for children that have exited, have closed their channels, or have
 * not started, so that the others can make a new team; if the others expect more ranks, they detect that some are missing.
 * @param children all ranks, in any order
 * @throws UcxError ERR_INVALID_PARAM
 */
export function serveForked(children: readonly ChildProcess[]): void {
  if (!Array.isArray(children)) throw invalidParam('children', 'must be a list of child processes', children);
  for (const child of children) checkMethods('children', child, ['on', 'send']);
  const running = new Set(children.filter(({ pid, connected }) => pid !== undefined && connected));
  const given = new Map<ChildProcess, string>();
  const answer = (): void => {
    if (given.size === 0 || [...running].some((child) => !given.has(child))) return;
    const all = [...given.values()];
    given.clear();
    for (const child of running) if (child.connected) child.send({ [ALL]: all }, () => {});
  };
  for (const child of running) {
    child.on('message', (message: Message) => {
      const bytes = message?.[GIVEN];
      if (typeof bytes !== 'string') return;
      given.set(child, bytes);
      answer();
    });
    // A child that closes its channel but runs on takes no longer part in exchanges.
    for (const end of ['exit', 'disconnect']) {
      child.on(end, () => {
        running.delete(child);
        answer();
      });
    }
  }
}

/**
 * The exchange of a forked child whose parent calls {@link serveForked}.
 * @param channel `process` of the child
 * @throws UcxError ERR_INVALID_PARAM
 */
export function forkedExchange(channel: ParentChannel): Exchange {
  checkMethods('channel', channel, ['on', 'off']);
  return (bytes) =>
    new Promise((resolve, reject) => {
      const end = (): void => {
        channel.off('message', onMessage);
        channel.off('disconnect', onDisconnect);
      };
      const fail = (): void => {
        end();
        reject(statusError(Status.CONNECTION_RESET, 'exchange: the parent has ended'));
      };
      const onDisconnect = fail;
      const onMessage = (message: unknown): void => {
        const all = (message as Message)?.[ALL];
        if (all === undefined) return;
        end();
        resolve(all.map((text) => new Uint8Array(Buffer.from(text, 'base64'))));
      };
      channel.on('message', onMessage);
      channel.on('disconnect', onDisconnect);
      if (channel.send === undefined) fail();
      else {
        const given = { [GIVEN]: Buffer.from(bytes).toString('base64') };
        channel.send(given, undefined, undefined, (error) => {
          if (error !== null) fail();
        });
      }
    });
}
