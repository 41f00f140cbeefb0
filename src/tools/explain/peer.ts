/** Peer process of `gaudi-ucx explain --peer process`: starts it, receives its worker address and remote key, and ends it. */

import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { extname } from 'node:path';
import type { EngineChoice } from '../../assembly/program/config.ts';
import type { MemoryType } from '../../ucs/memory/memory-type.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { CHANNEL_STDIO, spawnProgram } from '../base/command-line.ts';

/** Memory that the peer maps. */
export interface PeerMemory {
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly byteLength: number;
  /** Settings of the peer: the cards are divided between the two processes. */
  readonly config: Readonly<Record<string, string>>;
  /** Engine of both processes; undefined for UCX_ENGINE. */
  readonly engine?: EngineChoice;
}

/** Worker address and remote key of the peer, or the reason of its failure. */
export type PeerReply =
  | { readonly address: Uint8Array; readonly key: Uint8Array; readonly failure?: undefined }
  | { readonly failure: string };

/** Time after which a peer that has not ended is killed. */
const END_TIMEOUT_NS = 5e9;
const PROGRAM = new URL(`./explain-peer-program${extname(import.meta.url)}`, import.meta.url);

/** Peer process with memory. */
export class ExplainPeer {
  readonly address: Uint8Array;
  readonly key: Uint8Array;
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown>;

  private constructor(child: ChildProcess, ended: Promise<unknown>, address: Uint8Array, key: Uint8Array) {
    this.#child = child;
    this.#ended = ended;
    this.address = address;
    this.key = key;
  }

  /**
   * Starts the process. End it with {@link end}.
   * @throws UcxError IO_ERROR with the error of the peer, or if it has ended
   */
  static async start(memory: PeerMemory): Promise<ExplainPeer> {
    const child = spawnProgram(PROGRAM, [], { serialization: 'advanced', stdio: CHANNEL_STDIO });
    const ended = once(child, 'exit');
    child.send(memory);
    const reply = await Promise.race([once(child, 'message'), ended.then(() => undefined)]);
    const answer: PeerReply | undefined = reply?.[0];
    if (answer !== undefined && answer.failure === undefined) {
      return new ExplainPeer(child, ended, answer.address, answer.key);
    }
    await endOf(child, ended);
    throw statusError(Status.IO_ERROR, `the peer process failed: ${answer?.failure ?? 'it has ended'}`);
  }

  /** Ends the process and waits for its end. */
  end(): Promise<void> {
    return endOf(this.#child, this.#ended);
  }
}

async function endOf(child: ChildProcess, ended: Promise<unknown>): Promise<void> {
  if (child.connected) child.disconnect();
  const timer = systemClock.setTimer(END_TIMEOUT_NS, () => child.kill('SIGKILL'));
  await ended;
  timer.cancel();
}
