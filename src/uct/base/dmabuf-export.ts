/** A dma-buf that a memory domain hands to its caller. */

import { close as closeFd, forgetDescriptor } from '../../sys/index.ts';
import type { DmabufExport } from '../api/memory-domain.ts';

/** A dma-buf by its descriptor, and the offset of memory in it. */
export type DmabufPlace = Pick<DmabufExport, 'fd' | 'offset'>;

/** An exported dma-buf. Its descriptor is the caller's from here on, also if the thread of the caller is terminated. */
export class OwnedDmabuf implements DmabufExport {
  readonly fd: number;
  readonly offset: number;
  #isOpen = true;

  constructor({ fd, offset }: DmabufPlace, skip: number) {
    forgetDescriptor(fd);
    this.fd = fd;
    this.offset = offset + skip;
  }

  close(): void {
    if (this.#isOpen) closeFd(this.fd);
    this.#isOpen = false;
  }
}
