/** Counters of the dma-bufs that a card, an RDMA device or a context has exported and imported; logs each event at level debug. */

import type { Log } from '../debug/log.ts';
import { type StatsNode, statsNode } from './stats-node.ts';

/** Class name in the statistics. */
export const DMABUF_CLASS = 'dmabuf';

export class DmabufCounts {
  readonly #log: Log | undefined;
  #exports = 0;
  #exportBytes = 0;
  #imports = 0;
  #importBytes = 0;
  #mappings = 0;
  #mappedBytes = 0;
  #descriptors = 0;

  /** @param log undefined for an owner without dma-bufs, such as a control node */
  constructor(log?: Log) {
    this.#log = log;
  }

  /** Counts a descriptor made for a caller. @param what the exported memory, for the log */
  exported(byteLength: number, what: string): void {
    this.#exports += 1;
    this.#exportBytes += byteLength;
    this.note(`dma-buf exported: ${what}`);
  }

  /** Counts a dma-buf whose memory was mapped or registered. @param what the imported memory, for the log */
  imported(byteLength: number, what: string): void {
    this.#imports += 1;
    this.#importBytes += byteLength;
    this.#mappings += 1;
    this.#mappedBytes += byteLength;
    this.note(`dma-buf imported: ${what}`);
  }

  /** Counts a mapping or registration of an imported dma-buf that has ended. */
  released(byteLength: number, what: string): void {
    this.#mappings -= 1;
    this.#mappedBytes -= byteLength;
    this.note(`dma-buf released: ${what}`);
  }

  /** Counts one more descriptor that the owner keeps. */
  kept(): void {
    this.#descriptors += 1;
  }

  /** Counts a kept descriptor that the owner has closed. */
  closed(): void {
    this.#descriptors -= 1;
  }

  /** Logs another memory sharing event at level debug. */
  note(message: string): void {
    this.#log?.debug(message);
  }

  /** The counters; the last three are levels. */
  node(name: string): StatsNode {
    return statsNode(DMABUF_CLASS, name, {
      dmabuf_exports: this.#exports,
      dmabuf_export_bytes: this.#exportBytes,
      dmabuf_imports: this.#imports,
      dmabuf_import_bytes: this.#importBytes,
      dmabuf_mappings: this.#mappings,
      dmabuf_mapped_bytes: this.#mappedBytes,
      dmabuf_descriptors: this.#descriptors,
    });
  }
}
