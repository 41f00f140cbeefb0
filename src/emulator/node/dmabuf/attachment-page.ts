/**
 * Layout of the shared page in which a node server marks dma-bufs, attached for RDMA devices of a client, as withdrawn. No behaviour.
 *
 * The client sets {@link MOVING} before it reads the state of an attachment, and clears it after the copy; the server stores the state before it reads
 * {@link MOVING}. Therefore no copy begins after the server has read 0 there. Offsets are in 32-bit words.
 */

/** 1 while the client copies bytes of an attachment. */
export const MOVING = 0;
/** Maximum number of attachments of one client; a further one is ENOMEM. The state of attachment n, from 1 on, is word n. */
export const ATTACHMENTS_MAX = 1023;
/** State of an attachment: the memory is accessible. */
export const ATTACHED = 0;
/** State of an attachment: the card was closed, reset or removed. */
export const WITHDRAWN = 1;
/** Bytes of the page. */
export const ATTACHMENT_PAGE_BYTES = 4096;
