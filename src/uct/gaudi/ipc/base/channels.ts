/** Channels: traffic counters from one card to another one. Created at the first transfer between the two. */

/** The traffic between a local and a remote card. */
export class Channel {
  /** Name of the local card, such as `gaudi0`. */
  readonly local: string;
  /** PCI address of the card with the remote memory. */
  readonly remote: string;
  puts = 0;
  gets = 0;
  /** Bytes. */
  bytesPut = 0;
  bytesGot = 0;

  constructor(local: string, remote: string) {
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
