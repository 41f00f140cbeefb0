/**
 * Layout of the page by which a node server tells a client that dma-bufs, which RDMA devices of the client access, were withdrawn. No behaviour.
 *
 * The client sets {@link MOVING} before it reads the state of an attachment, and clears it after the copy; the server stores the state before it reads
 * {@link MOVING}. So no copy begins after the server has seen that none is under way. Offsets are in 32-bit words.
 */

/** 1 while the client copies bytes of an attachment. */
export const MOVING = 0;
/** Attachments of one client; a further one is ENOMEM. Their numbers, from 1 on, are the words of their states. */
export const ATTACHMENTS_MAX = 1023;
/** State of an attachment: the memory is there. */
export const ATTACHED = 0;
/** State of an attachment: the card was closed, reset or removed. */
export const WITHDRAWN = 1;
/** Bytes of the page. */
export const ATTACHMENT_PAGE_BYTES = 4096;
