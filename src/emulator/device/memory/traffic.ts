/**
 * Counters since the creation of the node: bytes that the engines of each card moved, by direction, and bytes over each link. A real card has no such
 * registers.
 */

import type { PhysicalMemory } from './physical-memory.ts';

/** Bytes and transfers of one direction. */
export interface DirectionCount {
  readonly bytes: number;
  readonly operations: number;
}

/** Bytes carried by the links of a node. */
export class LinkTraffic {
  readonly #cards: number;
  readonly #bytes: Float64Array;

  constructor(cards: number) {
    this.#cards = cards;
    this.#bytes = new Float64Array(cards * cards);
  }

  /** Counts bytes that went from one card to another. */
  add(from: number, to: number, byteLength: number): void {
    this.#bytes[from * this.#cards + to]! += byteLength;
  }

  /** Bytes by sender, then by receiver. */
  rows(): number[][] {
    return Array.from({ length: this.#cards }, (_, from) =>
      Array.from(this.#bytes.subarray(from * this.#cards, (from + 1) * this.#cards)),
    );
  }
}

/** Minimum time over which throughput is measured: that of firmware, which measures at a query (CPUCP_PACKET_PCIE_THROUGHPUT_GET in cpucp_if.h, Linux 6.12). */
const WINDOW_NS = 10e6;
const NS_PER_S = 1e9;

/** Mean rates over PCIe, in bytes per second. */
export interface PcieThroughput {
  /** Into the card. */
  readonly receive: number;
  /** Out of the card. */
  readonly transmit: number;
}

/** Bytes moved by the engines of one card. A transfer is counted when an engine takes it. */
export class CardTraffic {
  /** Time in nanoseconds during which bytes were moved in the submitting thread. */
  inlineNs = 0;
  #toDeviceBytes = 0;
  #toDeviceOperations = 0;
  #toHostBytes = 0;
  #toHostOperations = 0;
  #withinBytes = 0;
  #withinOperations = 0;
  #fillBytes = 0;
  #fillOperations = 0;
  readonly #minor: number;
  readonly #links: LinkTraffic;
  /** The last reading of the throughput, and the bytes until then. */
  #measuredNs: number;
  #measuredToDevice = 0;
  #measuredToHost = 0;
  #throughput: PcieThroughput = { receive: 0, transmit: 0 };

  /** @param nowNs time from which the throughput is measured */
  constructor(minor: number, links: LinkTraffic, nowNs: number) {
    this.#minor = minor;
    this.#links = links;
    this.#measuredNs = nowNs;
  }

  /**
   * The throughput between card and host since the last reading; within 10 ms the previous result. Unlike firmware, an emulated card cannot measure during
   * a query, because engines without a thread would not run meanwhile.
   */
  throughputAt(nowNs: number): PcieThroughput {
    const elapsedNs = nowNs - this.#measuredNs;
    if (elapsedNs < WINDOW_NS) return this.#throughput;
    this.#throughput = {
      receive: ((this.#toDeviceBytes - this.#measuredToDevice) * NS_PER_S) / elapsedNs,
      transmit: ((this.#toHostBytes - this.#measuredToHost) * NS_PER_S) / elapsedNs,
    };
    this.#measuredNs = nowNs;
    this.#measuredToDevice = this.#toDeviceBytes;
    this.#measuredToHost = this.#toHostBytes;
    return this.#throughput;
  }

  get hostToDevice(): DirectionCount {
    return { bytes: this.#toDeviceBytes, operations: this.#toDeviceOperations };
  }

  get deviceToHost(): DirectionCount {
    return { bytes: this.#toHostBytes, operations: this.#toHostOperations };
  }

  /** Within the card, and between cards. */
  get deviceToDevice(): DirectionCount {
    return { bytes: this.#withinBytes, operations: this.#withinOperations };
  }

  get fills(): DirectionCount {
    return { bytes: this.#fillBytes, operations: this.#fillOperations };
  }

  /** Counts a piece of a copy, in both directions if it is from host to host; `isFirst` marks the first piece of a transfer. */
  copied(source: PhysicalMemory, target: PhysicalMemory, byteLength: number, isFirst: boolean): void {
    const operations = isFirst ? 1 : 0;
    if (source.isHost) {
      this.#toDeviceBytes += byteLength;
      this.#toDeviceOperations += operations;
    }
    if (target.isHost) {
      this.#toHostBytes += byteLength;
      this.#toHostOperations += operations;
    }
    if (!source.isHost && !target.isHost) {
      this.#withinBytes += byteLength;
      this.#withinOperations += operations;
    }
    const minor = this.#minor;
    if (source.card >= 0 && source.card !== minor) this.#links.add(source.card, minor, byteLength);
    if (target.card >= 0 && target.card !== minor) this.#links.add(minor, target.card, byteLength);
  }

  /** Counts a piece of a fill. */
  filled(byteLength: number, isFirst: boolean): void {
    this.#fillBytes += byteLength;
    if (isFirst) this.#fillOperations += 1;
  }
}
