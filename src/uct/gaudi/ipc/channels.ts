/**
 * Channels: what one card has moved from and to another one. Made at the first transfer between the two; counters only.
 */

/** The traffic between a local and a remote card. */
export class Channel {
  /** Name of the local card, such as `gaudi0`. */
  readonly local: string;
  /** PCI address of the card that has the remote memory. */
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

  /** Counts an operation that the card has taken. */
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
