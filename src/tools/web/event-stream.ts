/**
 * Server-sent events for several clients, each of which receives the newest model. Models are not queued for a slow client; a client that never reads is
 * disconnected.
 */

import type { ServerResponse } from 'node:http';
import type { Clock } from '../../ucs/sys/clock.ts';

/** Maximum number of clients. */
export const CLIENTS_MAX = 16;
/** Bytes that may wait for a client before it misses a model. */
const BACKLOG_BYTES_MAX = 1 << 20;
/** Time after which a client that has not read is ended. */
const STALLED_NS_MAX = 30e9;

interface Client {
  readonly response: ServerResponse;
  /** Time since which the client has not read; undefined if it reads. */
  stalledNs: number | undefined;
}

/** The clients. */
export class EventStream {
  readonly #clients: Set<Client> = new Set();
  readonly #clock: Clock;
  #last: string | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Number of clients. */
  get size(): number {
    return this.#clients.size;
  }

  /** Adds a client, which gets the last event at once. @returns false if there are too many */
  add(response: ServerResponse): boolean {
    if (this.#clients.size >= CLIENTS_MAX) return false;
    const client: Client = { response, stalledNs: undefined };
    this.#clients.add(client);
    response.on('close', () => this.#clients.delete(client));
    if (this.#last !== undefined) response.write(this.#last);
    return true;
  }

  /** Sends a model to all clients that read. */
  send(model: object): void {
    const event = `data: ${JSON.stringify(model)}\n\n`;
    this.#last = event;
    for (const client of this.#clients) this.#sendTo(client, event);
  }

  /** Ends all. */
  close(): void {
    for (const { response } of this.#clients) response.destroy();
    this.#clients.clear();
  }

  #sendTo(client: Client, event: string): void {
    const { response } = client;
    if (response.writableLength <= BACKLOG_BYTES_MAX) {
      client.stalledNs = undefined;
      response.write(event);
      return;
    }
    client.stalledNs ??= this.#clock.nowNs();
    if (this.#clock.nowNs() - client.stalledNs < STALLED_NS_MAX) return;
    this.#clients.delete(client);
    response.destroy();
  }
}
