/** Short spelling of the faults of one file. */

import type { Fault } from './fault.ts';

/** Returns a function that makes faults of a file. */
export function inFile(file: string): (before: string, after: string, breaks: string, equivalent?: string) => Fault {
  return (before, after, breaks, equivalent) => {
    const fault = { file, before, after, breaks };
    return equivalent === undefined ? fault : { ...fault, equivalent };
  };
}
