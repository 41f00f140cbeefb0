/** Channels: traffic counters from one card to another one. Created at the first transfer between the two. */

import { busIdOf } from '../../../../ucs/sys/topology.ts';
import type { ChannelTraffic } from '../../../api/memory.ts';

/** The traffic between a local and a remote card. */
export class Channel implements ChannelTraffic {
  readonly id: number;
  readonly local: string;
  readonly remote: string;
  puts = 0;
  gets = 0;
  /** Bytes. */
  bytesPut = 0;
  bytesGot = 0;

  constructor(id: number, local: string, remote: string) {
    this.id = id;
    this.local = local;
    this.remote = remote;
  }

  /** Counts an operation that the card has accepted. */
  count(byteLength: number, isPut: boolean): void {
    if (isPut) {
      this.puts += 1;
      this.bytesPut += byteLength;
    } else {
      this.gets += 1;
      this.bytesGot += byteLength;
    }
  }
}

/** The channels of one memory domain, which outlive its interfaces. */
export class Channels {
  /** By their ids. */
  readonly all: Channel[] = [];

  /** The channel between a card of this process and another one, by its bus number. Cold: a key keeps its channels. */
  between(local: string, busNumber: number): Channel {
    const remote = busIdOf(busNumber);
    const known = this.all.find((channel) => channel.local === local && channel.remote === remote);
    if (known !== undefined) return known;
    const channel = new Channel(this.all.length, local, remote);
    this.all.push(channel);
    return channel;
  }
}
