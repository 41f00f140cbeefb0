/** The exchange of a few bytes of every rank, by which a team finds its members: the type. */

/**
 * An all-gather of small bytes, at most a few KiB: every rank calls it with its own, and gets those of all ranks, itself included, in any order. It is
 * called once for each team that is created.
 */
export type Exchange = (bytes: Uint8Array) => Promise<readonly Uint8Array[]>;
