/** What is known of a tagged message that was found or received. */

import { showAs } from '../../../ucs/type/inspect.ts';

/** Tag and length of a message. */
export class TagInfo {
  readonly senderTag: bigint;
  readonly byteLength: number;

  constructor(senderTag: bigint, byteLength: number) {
    this.senderTag = senderTag;
    this.byteLength = byteLength;
  }
}

// JSON has no bigint.
showAs(TagInfo, 'TagMessage', ({ senderTag, byteLength }) => ({ senderTag, byteLength }));
