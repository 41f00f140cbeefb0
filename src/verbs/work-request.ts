/** Writes work requests into a block, as the structs of the ABI. */

import { highOf } from '../ucs/type/int64.ts';
import { RecvWr, SendWr, Sge } from './abi.ts';

/** Writes a send work request without its operands, as the last of its chain. @param at its first word */
export function writeSendWr(words: Uint32Array, at: number, id: number, opcode: number, flags: number): void {
  words[at + SendWr.WR_ID] = id;
  words[at + SendWr.WR_ID + 1] = highOf(id);
  words[at + SendWr.NEXT] = 0;
  words[at + SendWr.NEXT + 1] = 0;
  words[at + SendWr.NUM_SGE] = 0;
  words[at + SendWr.OPCODE] = opcode;
  words[at + SendWr.SEND_FLAGS] = flags;
}

/** Sets the list of a send work request. @param address of its first entry */
export function setSgList(words: Uint32Array, at: number, address: number, count: number): void {
  words[at + SendWr.SG_LIST] = address;
  words[at + SendWr.SG_LIST + 1] = highOf(address);
  words[at + SendWr.NUM_SGE] = count;
}

/** Sets the remote memory of a read or write. */
export function setRdma(words: Uint32Array, at: number, remoteAddress: number, rkey: number): void {
  words[at + SendWr.RDMA_REMOTE_ADDR] = remoteAddress;
  words[at + SendWr.RDMA_REMOTE_ADDR + 1] = highOf(remoteAddress);
  words[at + SendWr.RDMA_RKEY] = rkey;
}

/** Sets the remote word of an atomic operation. Its operands are words of SendWr.ATOMIC_COMPARE_ADD and SendWr.ATOMIC_SWAP. */
export function setAtomic(words: Uint32Array, at: number, remoteAddress: number, rkey: number): void {
  words[at + SendWr.ATOMIC_REMOTE_ADDR] = remoteAddress;
  words[at + SendWr.ATOMIC_REMOTE_ADDR + 1] = highOf(remoteAddress);
  words[at + SendWr.ATOMIC_RKEY] = rkey;
}

/** Sets the destination of a datagram. */
export function setDatagram(words: Uint32Array, at: number, addressHandle: number, qpNum: number, qkey: number): void {
  words[at + SendWr.UD_AH] = addressHandle;
  words[at + SendWr.UD_AH + 1] = highOf(addressHandle);
  words[at + SendWr.UD_REMOTE_QPN] = qpNum;
  words[at + SendWr.UD_REMOTE_QKEY] = qkey;
}

/** Writes an entry of a scatter/gather list. */
export function writeSge(words: Uint32Array, at: number, address: number, byteLength: number, lkey: number): void {
  words[at + Sge.ADDR] = address;
  words[at + Sge.ADDR + 1] = highOf(address);
  words[at + Sge.LENGTH] = byteLength;
  words[at + Sge.LKEY] = lkey;
}

/** Writes a receive work request with one entry, as the last of its chain. @param listAddress address of the entry */
export function writeRecvWr(words: Uint32Array, at: number, id: number, listAddress: number): void {
  words[at + RecvWr.WR_ID] = id;
  words[at + RecvWr.WR_ID + 1] = highOf(id);
  words[at + RecvWr.NEXT] = 0;
  words[at + RecvWr.NEXT + 1] = 0;
  words[at + RecvWr.SG_LIST] = listAddress;
  words[at + RecvWr.SG_LIST + 1] = highOf(listAddress);
  words[at + RecvWr.NUM_SGE] = 1;
}
