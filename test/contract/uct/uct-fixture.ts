/**
 * The common part of the suites for memory domains and endpoints: an open memory domain with counters, and transfers driven to their end (see
 * driven-operations.ts).
 */

import { afterEach, beforeEach, expect } from 'vitest';
import type { IfaceResource } from '../../../src/uct/api/iface.ts';
import type { DmabufExport, MemoryDomain } from '../../../src/uct/api/memory-domain.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { createTestLog, type TestLog } from '../../fixtures/test-log.ts';
import { SEGMENT_PROBES } from '../../fixtures/transports/own-segments.ts';

export * from './driven-operations.ts';

/** An open memory domain under test. */
export interface MdUnderTest {
  readonly md: MemoryDomain;
  /** Bytes of host memory that are pinned for devices, command buffers included. */
  pinnedBytes(): number;
  /** Bytes of device memory in live blocks. */
  deviceBytes(): number;
  /** Where interfaces are opened that those on the first resource connect to; by default the first too. */
  readonly peer?: IfaceResource;
  /**
   * A dma-buf of memory of the second card, which stays until its exporter is closed; absent if the memory domain has no cards, and if its devices
   * register no dma-bufs.
   */
  foreignDmabuf?(byteLength: number): DmabufExport;
  /** Devices keep the pages of registered memory, and write to them though its buffer was detached. */
  readonly writesDetached?: boolean;
  /** Releases everything but the memory domain, which the suite closes itself. */
  close(): void;
}

/** Opens a memory domain for one case. */
export type MdSetup = (log: TestLog) => MdUnderTest;

/** One memory domain, opened for every case, with checks for leaks and warnings. */
export class UctFixture {
  #under: MdUnderTest | undefined;
  log: TestLog = createTestLog();

  constructor(setup: MdSetup) {
    expectNoLeaks(SEGMENT_PROBES);
    beforeEach(() => {
      this.log = createTestLog();
      this.#under = setup(this.log);
    });
    afterEach(() => {
      const under = this.under;
      this.#under = undefined;
      under.md.close();
      expect(under.deviceBytes()).toBe(0);
      expect(under.pinnedBytes()).toBe(0);
      under.close();
      this.log.expectQuiet();
    });
  }

  get under(): MdUnderTest {
    if (this.#under === undefined) throw new Error('no case runs');
    return this.#under;
  }

  get md(): MemoryDomain {
    return this.under.md;
  }

  /** Whether a flag of the memory domain is set. */
  has(flag: number): boolean {
    return (this.md.attributes.flags & flag) !== 0;
  }
}
