/** Closes descriptors made by this folder: the only way to do so. */

import { closeCall } from './libc.ts';
import { forgetDescriptor } from './thread-descriptors.ts';

/** Closes a descriptor. Returns as close(2): 0, or -1 with errno. */
export function closeDescriptor(fd: number): number {
  forgetDescriptor(fd);
  return closeCall(fd);
}
