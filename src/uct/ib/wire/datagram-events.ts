/** Reading the datagrams of an interface when they come: the event loop does it, so that peers do not wait for progress. */

import { EventAlarm } from '../../../sys/index.ts';
import type { ConnectMessage } from './connect-message.ts';
import type { Datagrams } from './datagrams.ts';

/** The events of one interface. */
export class DatagramEvents {
  readonly #datagrams: Datagrams;
  readonly #alarm: EventAlarm;
  readonly #onMessage: (message: ConnectMessage) => void;

  /** @throws SyscallError EMFILE */
  constructor(datagrams: Datagrams, onMessage: (message: ConnectMessage) => void) {
    this.#datagrams = datagrams;
    this.#onMessage = onMessage;
    this.#alarm = new EventAlarm(datagrams.channel.fd, () => {
      this.#datagrams.channel.consume();
      this.arm();
    });
  }

  /** Lets the event loop report the next datagram; those that have come before are read now. */
  arm(): void {
    this.#datagrams.reader.cq.requestNotify();
    this.progress();
    this.#alarm.arm();
  }

  /** Reads the datagrams that have come. */
  progress(): void {
    this.#datagrams.progress(this.#onMessage);
  }

  close(): void {
    this.#alarm.close();
  }
}
