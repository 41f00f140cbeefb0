/** Processes of the exchange, one for each card or node: starts them, sends them commands, detects their end, and ends them. */

import type { ChildProcess } from 'node:child_process';
import { extname } from 'node:path';
import { systemClock } from '../../ucs/sys/clock.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { scavenge } from '../../uct/index.ts';
import { CHANNEL_STDIO, spawnProgram } from '../base/command-line.ts';
import type { PrivateNode, SharedNode } from '../node-access/node.ts';
import { type Answers, type Command, END, type Reply } from './exchange-messages.ts';

/** Timeout of a command. */
const ANSWER_TIMEOUT_NS = 60e9;
/** Time after which a process that has not ended is killed. */
const END_TIMEOUT_NS = 5e9;

const PROGRAM = new URL(`./card-program${extname(import.meta.url)}`, import.meta.url);

type Kind = keyof Answers;
type CommandOf<K extends Kind> = Extract<Command, { readonly kind: K }>;

/** Parameters of a process. */
export interface Party {
  /** Logical index of its card, or number of its node. */
  readonly index: number;
  /** Name in messages, such as `card 3`. */
  readonly name: string;
  readonly env: NodeJS.ProcessEnv;
}

/** Environment of an exchange: parameters of its processes, and the node servers that were started for them. */
export class ExchangePlace {
  /** Word for one process in messages. */
  readonly unit: 'card' | 'node';
  readonly emulated: boolean;
  readonly parties: readonly Party[];
  readonly #nodes: readonly (SharedNode | PrivateNode)[];

  constructor(
    unit: 'card' | 'node',
    parties: readonly Party[],
    emulated: boolean,
    nodes: readonly (SharedNode | PrivateNode)[],
  ) {
    this.unit = unit;
    this.parties = parties;
    this.emulated = emulated;
    this.#nodes = nodes;
  }

  /** Ends the node servers. */
  async close(): Promise<void> {
    await Promise.all(this.#nodes.map((node) => node.close()));
  }
}

/** One process. */
class Member {
  readonly name: string;
  readonly ended: Promise<void>;
  readonly #child: ChildProcess;
  #onReply: ((reply: Reply) => void) | undefined = undefined;
  #isEnding = false;
  #isKilled = false;
  /** Description of an unexpected end; undefined otherwise. */
  #death: string | undefined = undefined;

  constructor({ name, env }: Party, onDeath: (error: Error) => void) {
    this.name = name;
    const child = spawnProgram(PROGRAM, [], { env, serialization: 'advanced', stdio: CHANNEL_STDIO });
    this.#child = child;
    child.on('message', (reply: Reply) => this.#onReply?.(reply));
    this.ended = new Promise((resolve) => {
      const onEnd = (death: string | undefined): void => {
        this.#death ??= death;
        if (this.deathError !== undefined) onDeath(this.deathError);
        resolve();
      };
      child.once('exit', (code, signal) => onEnd(this.#deathOf(code, signal)));
      child.once('error', (error) => onEnd(`could not be started: ${error.message}`));
    });
  }

  get deathError(): Error | undefined {
    if (this.#death === undefined) return undefined;
    return statusError(Status.IO_ERROR, `the process of ${this.name} (pid ${this.#child.pid}) ${this.#death}`);
  }

  /** Sends a command. Resolves with the reply; never resolves if the process ends first. */
  command(command: Command): Promise<Reply> {
    return new Promise((resolve) => {
      this.#onReply = resolve;
      this.#send(command);
    });
  }

  /** Requests the end of the process and kills it after a timeout. */
  async end(): Promise<void> {
    this.#isEnding = true;
    this.#send(END);
    const timer = systemClock.setTimer(END_TIMEOUT_NS, () => {
      this.#isKilled = true;
      this.#child.kill('SIGKILL');
    });
    await this.ended;
    timer.cancel();
  }

  #deathOf(code: number | null, signal: NodeJS.Signals | null): string | undefined {
    if (this.#isKilled || (this.#isEnding && code === 0)) return undefined;
    return signal === null ? `ended with code ${code}` : `was ended by ${signal}`;
  }

  #send(message: Command | typeof END): void {
    // If the message is lost, the process has ended, and its exit status is the reason.
    if (this.#child.connected) this.#child.send(message, () => {});
  }
}

/** All processes. */
export class Crew {
  readonly #members: readonly Member[];
  /** Rejects when a process has ended unexpectedly, or {@link stop} is called. */
  readonly #failed: Promise<never>;
  #fail: (error: Error) => void = () => {};

  /** Starts one process for each party. */
  constructor(parties: readonly Party[]) {
    this.#failed = new Promise((_resolve, reject) => {
      this.#fail = reject;
    });
    // Pending commands reject with this error; between commands nothing else handles it.
    this.#failed.catch(() => {});
    this.#members = parties.map((party) => new Member(party, (error) => this.#fail(error)));
  }

  /**
   * Executes a command in one process.
   * @throws UcxError IO_ERROR with the error of the process, or how it ended; TIMED_OUT; the error of {@link stop}
   */
  async ask<K extends Kind>(index: number, command: CommandOf<K>): Promise<Answers[K]> {
    const member = this.#members[index]!;
    const timer = systemClock.setTimer(ANSWER_TIMEOUT_NS, () => {
      const what = `the process of ${member.name} did not finish its ${command.kind} within ${ANSWER_TIMEOUT_NS / 1e9} s (run with UCX_LOG_LEVEL=debug)`;
      this.#fail(statusError(Status.TIMED_OUT, what));
    });
    try {
      const reply = await Promise.race([member.command(command), this.#failed]);
      if ('value' in reply) return reply.value as Answers[K];
      const error = statusError(Status.IO_ERROR, `${member.name}: ${reply.failure}`);
      // Ends the waits for the other processes.
      this.#fail(error);
      throw error;
    } finally {
      timer.cancel();
    }
  }

  /** Executes a command in all processes at the same time. @returns the replies by card */
  askAll<K extends Kind>(commandOf: (index: number) => CommandOf<K>): Promise<Answers[K][]> {
    return Promise.all(this.#members.map((_member, index) => this.ask<K>(index, commandOf(index))));
  }

  /** Fails all commands, present and future, with an error. */
  stop(error: Error): void {
    this.#fail(error);
  }

  /**
   * Ends all processes and waits for their end.
   * @returns the error of the process that ended unexpectedly first, which is the cause of the others
   */
  async end(): Promise<Error | undefined> {
    await Promise.all(this.#members.map((member) => member.end()));
    // Removes the shared memory files of processes that were killed.
    scavenge();
    return this.#members.find(({ deathError }) => deathError !== undefined)?.deathError;
  }
}
