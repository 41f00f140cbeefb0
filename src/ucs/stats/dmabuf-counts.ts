/** The dma-bufs that a card, an RDMA device or a context has exported and imported: counters, and a log record at level debug for each event. */

import type { Log } from '../debug/log.ts';
import { type StatsNode, statsNode } from './stats-node.ts';

/** Class of the nodes of the statistics. */
export const DMABUF_CLASS = 'dmabuf';

/** The counters of one owner. */
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

  /** A descriptor was made for a caller. @param what the exported memory, for the log */
  exported(byteLength: number, what: string): void {
    this.#exports += 1;
    this.#exportBytes += byteLength;
    this.note(`dma-buf exported: ${what}`);
  }

  /** Memory of a dma-buf was mapped or registered. */
  imported(byteLength: number, what: string): void {
    this.#imports += 1;
    this.#importBytes += byteLength;
    this.#mappings += 1;
    this.#mappedBytes += byteLength;
    this.note(`dma-buf imported: ${what}`);
  }

  /** That mapping or registration has ended. */
  released(byteLength: number, what: string): void {
    this.#mappings -= 1;
    this.#mappedBytes -= byteLength;
    this.note(`dma-buf released: ${what}`);
  }

  /** The owner keeps another descriptor of a dma-buf. */
  kept(): void {
    this.#descriptors += 1;
  }

  /** The owner has closed one of them. */
  closed(): void {
    this.#descriptors -= 1;
  }

  /** Logs another event of sharing memory at level debug. */
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
